// Small configurations for tests, random ones that reach every corner.
#pragma once

#include <rapidcheck.h>

#include "core/model/lora.hpp"
#include "core/plan/fp8.hpp"
#include "core/plan/fp8_blocks.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp::test {

/// Windows of some layers or all, caps, another scale of scores, and RoPE of parts of heads and by
/// tables of two kinds.
inline void draw_attention(ModelShape& model) {
  const auto pick = [](std::int64_t low, std::int64_t high) {
    return *rc::gen::inRange<std::int64_t>(low, high + 1);
  };
  // An odd number of halves is in lowest terms.
  const auto halves = [&] { return Rational{2 * pick(1, 20) + 1, 2}; };
  const bool all = *rc::gen::arbitrary<bool>();
  if (pick(0, 2) == 0)
    for (std::int64_t layer = 0; layer < model.layers; ++layer)
      if (all || layer == model.layers - 1 || *rc::gen::arbitrary<bool>())
        model.sliding_layers.push_back(layer);
  if (!all && model.layers > 1 && std::ssize(model.sliding_layers) == model.layers)
    model.sliding_layers.erase(model.sliding_layers.begin());
  if (!model.sliding_layers.empty()) {
    model.sliding_window = pick(1, 24);
    if (pick(0, 2) == 0) model.local_rope_theta = {100, 1};
  }
  if (model.local_rope_theta.num == 0 && pick(0, 7) == 0) model.nope_layers = {model.layers - 1};
  if (model.head_dim > 2 && pick(0, 3) == 0) model.rotary_dim = 2 * pick(1, model.head_dim / 2 - 1);
  if (pick(0, 3) == 0) model.query_scalar = halves();
  if (pick(0, 3) == 0) model.score_cap = halves();
  if (pick(0, 3) == 0) model.logit_cap = halves();
}

/// The features of Gemma's blocks beside Llama's, each independently.
inline void draw_gemma(ModelShape& model) {
  const auto some = [] { return *rc::gen::inRange(0, 4) == 0; };
  if (some()) model.activation = Activation::gelu_tanh;
  model.output_norms = some();
  model.zero_centered_norms = some();
  model.scaled_embedding = some();
}

inline void no_fp8(PlanConfig& config) {
  config.fp8 = Fp8Recipe::off;
  config.fp8_keep_bf16 = 0;
  config.fp8_accumulate = Fp8Accumulate::fast_forward;
  config.fp8_history = 0;
  config.fp8_amax = Fp8Amax::max;
  config.fp8_gather = false;
}

/// No FP8, or no gathered casts, where the other settings do not allow it.
inline void drop_impossible_fp8(PlanConfig& config) {
  if (check_fp8(config)) return;
  config.fp8_gather = false;
  if (check_fp8(config)) return;
  no_fp8(config);
}

/// FP8 of a dense model without biases, whose sizes become multiples of 16.
inline void draw_fp8(PlanConfig& config) {
  const ModelShape& before = config.model;
  if (before.experts != 0 || before.traits().latent_attention || before.traits().biases) return;
  const auto pick = [](std::int64_t low, std::int64_t high) {
    return *rc::gen::inRange(low, high + 1);
  };
  config.model.qkv_bias = false;
  config.model.head_dim = 16;
  config.model.rotary_dim = 0;
  config.model.hidden = 16 * pick(1, 2);
  config.model.intermediate = 16 * pick(1, 3);
  config.seq_len = 16;
  // Scales of tensors in half of them.
  config.fp8 = *rc::gen::element(Fp8Recipe::current, Fp8Recipe::current, Fp8Recipe::delayed,
                                 Fp8Recipe::delayed, Fp8Recipe::mxfp8, Fp8Recipe::nvfp4,
                                 Fp8Recipe::nvfp4, Fp8Recipe::blockwise);
  if (config.fp8 == Fp8Recipe::mxfp8 || config.fp8 == Fp8Recipe::blockwise) {
    const std::int64_t block = block_format(config.fp8)->block;
    config.model.head_dim = config.model.hidden = config.model.intermediate = block;
    config.seq_len = block;
    config.model.max_seq_len = std::max(config.model.max_seq_len, block);
  }
  if (!block_format(config.fp8)) config.fp8_accumulate = static_cast<Fp8Accumulate>(pick(0, 2));
  if (config.fp8 == Fp8Recipe::delayed) {
    config.fp8_history = pick(0, 2);
    config.fp8_amax = static_cast<Fp8Amax>(pick(0, 1));
  }
  config.fp8_keep_bf16 = pick(0, (config.model.layers - 1) / 2);
  if (config.param_dtype == DType::bf16) config.exact_sums = false;
  config.fp8_gather = config.fp8 == Fp8Recipe::current && pick(0, 1) == 1;
  if (config.fp8_gather) {
    config.frozen.clear();
    if (config.outer_strategy == Strategy::optim) config.outer_strategy = Strategy::no_shard;
  }
  drop_impossible_fp8(config);
}

/// Adapters beside some layers or all, of which some may be frozen, and what their names select.
inline void draw_lora(PlanConfig& config) {
  const auto pick = [](std::int64_t low, std::int64_t high) {
    return *rc::gen::inRange<std::int64_t>(low, high + 1);
  };
  if (config.model.experts == 0) config.model.fused_weights = pick(0, 3) == 0;
  config.lora_rank = pick(1, 5);
  config.lora_alpha = *rc::gen::element(Rational{8, 1}, Rational{3, 1}, Rational{5, 2});
  const bool all = *rc::gen::arbitrary<bool>();
  for (const LoraTarget& target : lora_targets(config.model))
    if (all || *rc::gen::arbitrary<bool>()) config.lora_targets.emplace_back(target.name);
  if (config.lora_targets.empty()) config.lora_targets = default_lora_targets(config.model);
  config.frozen.clear();
  if (pick(0, 4) == 0) config.frozen = {"lora_A"};
  if (pick(0, 4) == 0 && config.model.layers > 1) config.frozen = {"layers.0."};
  config.lr_scale.clear();
  if (pick(0, 2) == 0) config.lr_scale = {"lora_B=2"};
  config.no_decay.clear();
  if (pick(0, 2) == 0) config.no_decay = {"lora_A"};
}

/// Experts in all blocks, or in all but some.
inline void draw_experts(PlanConfig& config) {
  const auto pick = [](std::int64_t low, std::int64_t high) {
    return *rc::gen::inRange<std::int64_t>(low, high + 1);
  };
  ModelShape& model = config.model;
  const std::int64_t experts = pick(1, 5);
  std::vector<std::int64_t> dense;
  for (std::int64_t layer = 0; layer + 1 < model.layers && !model.traits().only_experts; ++layer)
    if (pick(0, 3) == 0) dense.push_back(layer);
  add_experts(model, experts, pick(1, experts), std::move(dense));
  model.expert_intermediate = pick(1, 9);
  model.normalised_routing = pick(0, 1) == 1;
  if (model.family == Family::llama && pick(0, 1) == 1) model.shared_intermediate = pick(1, 7);
  if (pick(0, 1) == 1) model.router_aux_loss = {1, 100};
  if (pick(0, 3) == 0) model.router_z_loss = {1, 1000};
  const bool clamps = model.shared_intermediate == 0 && pick(0, 3) == 0;
  if (model.family == Family::gpt_oss || clamps) {
    model.swiglu_alpha = {851, 500};
    model.swiglu_limit = {pick(1, 7), 1};
  }
  for (std::string& name : config.no_decay)
    if (name == "mlp.down") name = "down_proj";
}

/// Whether experts' gradients are reduced as often as all others: else in the dtype that they have.
inline bool reduces_alike(const PlanConfig& config) {
  const auto each_microbatch = [](Strategy s) { return s >= Strategy::optim_grads; };
  return each_microbatch(config.strategy_of_experts()) == each_microbatch(config.strategy);
}

/// The models from which configurations are drawn.
enum class Models { all, with_experts };

/// A strategy of their own for half of the expert-parallel experts, if that is possible.
inline void draw_expert_strategy(PlanConfig& config) {
  const auto strategy = static_cast<Strategy>(*rc::gen::inRange(0, 4));
  if (strategy == config.strategy || config.outer_strategy == Strategy::optim ||
      *rc::gen::arbitrary<bool>())
    return;
  config.expert_strategy = strategy;
  if (!reduces_alike(config)) config.reduce_dtype = config.grad_dtype;
}

/// Experts over ranks that divide both them and those of a group, where nothing else speaks against
/// it; half of the time what does is taken back, and more often where all models have experts.
inline void draw_expert_parallel(PlanConfig& config, Models models) {
  const std::int64_t ranks = config.mesh.size(Axis::dp_shard);
  std::vector<std::int64_t> able;
  for (std::int64_t ep = 2; ep <= config.model.experts; ++ep)
    if (config.model.experts % ep == 0 && ranks % ep == 0) able.push_back(ep);
  const bool only_experts = models == Models::with_experts;
  const auto takes_back = [&] {
    return only_experts ? *rc::gen::inRange(0, 8) > 0 : *rc::gen::arbitrary<bool>();
  };
  if (!able.empty() && takes_back()) {
    config.gather = config.reduce = Transport::nccl;
    if (config.state_dtype == StateDtype::blockwise8) config.state_dtype = StateDtype::full;
  }
  const bool in_windows = config.gather != Transport::nccl || config.reduce != Transport::nccl;
  if (able.empty() || in_windows || config.state_dtype == StateDtype::blockwise8) return;
  config.expert_parallel = *rc::gen::elementOf(able);
  config.mesh = with_expert_grid(config.mesh, config.expert_parallel);
  if (*rc::gen::arbitrary<bool>())
    config.capacity_factor = *rc::gen::element(Rational{1, 1}, Rational{3, 2});
  draw_expert_strategy(config);
}

/// Latent vectors and groups of experts.
inline void draw_latent(ModelShape& model) {
  const auto pick = [](std::int64_t low, std::int64_t high) {
    return *rc::gen::inRange<std::int64_t>(low, high + 1);
  };
  model.rotary_dim = 2 * pick(1, 2);
  model.head_dim = model.rotary_dim + 2 * pick(1, 3);
  model.value_dim = pick(1, 9);
  if (model.value_dim == model.head_dim) model.value_dim = 0;
  model.kv_latent = pick(1, 9);
  model.query_latent = pick(0, 1) * pick(1, 9);
  model.router_aux_loss = model.router_z_loss = {0, 1};
  model.swiglu_limit = model.swiglu_alpha = {0, 1};
  model.sliding_window = 0;
  model.sliding_layers.clear();
  model.local_rope_theta = {0, 1};
  model.nope_layers.clear();
  model.sigmoid_routing = pick(0, 1) == 1;
  if (pick(0, 1) == 1) model.routed_scale = {5, 2};
  if (pick(0, 1) == 1) model.shared_intermediate = pick(1, 7);
  if (pick(0, 1) == 0) return;
  model.experts = 2 * pick(2, 4);
  model.router_groups = model.experts / 2;
  model.chosen_groups = model.router_groups - 1;
  model.experts_per_token = pick(1, 2 * model.chosen_groups);
}

/// Granite's factors.
inline void draw_multipliers(ModelShape& model) {
  if (!model.scaled_embedding) model.embedding_multiplier = {5, 2};
  if (!model.output_norms && model.experts == 0) model.residual_multiplier = {11, 50};
  model.logit_multiplier = {1, 8};
}

/// Routing by sigmoids beside plain attention.
inline void draw_sigmoids(ModelShape& model) {
  model.router_aux_loss = model.router_z_loss = {0, 1};
  model.swiglu_limit = model.swiglu_alpha = {0, 1};
  model.sigmoid_routing = true;
  if (model.family != Family::glm4_moe) return;
  model.routed_scale = {5, 2};
  model.shared_intermediate = model.expert_intermediate * *rc::gen::inRange<std::int64_t>(0, 3);
}

/// A third of all models are of other families than Llama's; those with experts are of each alike.
inline void draw_family(PlanConfig& config, Models models) {
  using enum Family;
  const bool only_experts = models == Models::with_experts;
  const Family family =
      only_experts
          ? *rc::gen::element(llama, mixtral, olmoe, gpt_oss, deepseek, minimax_m2, glm4_moe)
          : *rc::gen::element(llama, llama, llama, llama, llama, llama, gpt2, olmo2, mixtral, olmoe,
                              gpt_oss, deepseek, minimax_m2, glm4_moe);
  const std::int64_t intermediate = config.model.intermediate;
  make_family(config.model, family);
  for (std::vector<std::string>* names : {&config.frozen, &config.lr_scale, &config.no_decay})
    *names = names_in(family, *names);
  const bool some = family == llama && (only_experts || *rc::gen::inRange(0, 4) == 0);
  // Some layers may be dense.
  if (family == deepseek || family == glm4_moe) config.model.intermediate = intermediate;
  if (some || config.model.experts != 0) draw_experts(config);
  if (family == llama && *rc::gen::inRange(0, 8) == 0) draw_multipliers(config.model);
  if (family == deepseek) draw_latent(config.model);
  if (family == minimax_m2 || family == glm4_moe) draw_sigmoids(config.model);
  if (config.model.experts != 0) draw_expert_parallel(config, models);
}

/// fp16 with a loss scale.
inline void draw_scaled(PlanConfig& config) {
  config.param_dtype = DType::fp16;
  config.main_dtype = DType::fp32;
  config.loss_scale = {.num = 1'024};
  config.loss_scale_window = *rc::gen::element<std::int64_t>(0, 2'000);
}

/// Valid configurations with every strategy, mesh, layout, recompute policy and odd shape: group
/// size 1, empty shards (many ranks, few rows), tied and frozen weights, one layer, 1 to 5
/// microbatches.
inline rc::Gen<PlanConfig> any_config(Models models = Models::all) {
  return rc::gen::exec([models] {
    const auto pick = [](std::int64_t low, std::int64_t high) {
      return *rc::gen::inRange<std::int64_t>(low, high + 1);
    };
    PlanConfig config = small_config(1, pick(1, 4));
    ModelShape& model = config.model;
    model.kv_heads = pick(1, 2);
    model.heads = model.kv_heads * pick(1, 3);
    model.head_dim = 2 * pick(1, 4);
    model.hidden = pick(1, 12);
    model.intermediate = pick(1, 20);
    model.vocab = pick(2, 40);
    model.tied_embeddings = *rc::gen::arbitrary<bool>();
    model.qkv_bias = *rc::gen::arbitrary<bool>();
    model.qk_norm = *rc::gen::arbitrary<bool>();
    draw_attention(model);
    draw_gemma(model);
    config.mesh.resize(Axis::dp_shard, *rc::gen::element<std::int64_t>(1, 2, 3, 7, 8, 64));
    config.mesh.resize(Axis::dp_outer, *rc::gen::element<std::int64_t>(1, 1, 2, 3));
    config.strategy = static_cast<Strategy>(pick(0, 3));
    if (config.strategy == Strategy::optim_grads_params && config.mesh.size(Axis::dp_outer) > 1)
      config.outer_strategy = *rc::gen::element(Strategy::no_shard, Strategy::optim);
    config.layout = *rc::gen::element(LayoutRule::packed, LayoutRule::megatron_fsdp);
    config.seq_len = pick(1, 20);
    config.micro_batch = pick(1, 3);
    config.microbatches = pick(1, 5);
    config.recompute.kind = static_cast<Recompute>(pick(0, 2));
    if (config.recompute.kind == Recompute::full)
      config.recompute.full_blocks = pick(0, model.layers);
    config.grad_dtype = *rc::gen::element(DType::fp32, DType::bf16);
    config.reduce_dtype = *rc::gen::element(DType::fp32, DType::bf16);
    config.main_dtype = *rc::gen::element(DType::fp32, DType::fp32, DType::bf16);
    config.prefetch = pick(0, 3);
    config.grad_slots = pick(model.tied_embeddings ? 2 : 1, 4);
    config.allocator = static_cast<AllocatorPolicy>(pick(0, 3));
    config.optimizer = *rc::gen::element(Optimizer::adamw, Optimizer::adamw, Optimizer::lion,
                                         Optimizer::sgd, Optimizer::muon, Optimizer::muon);
    if (config.optimizer != Optimizer::sgd)
      config.state_dtype = static_cast<StateDtype>(pick(0, 2));
    if (config.state_dtype == StateDtype::blockwise8) config.layout = LayoutRule::packed;
    if (pick(0, 3) == 0) config.lr_scale = {"embed_tokens=0.5", "o_proj=2"};
    if (pick(0, 3) == 0) config.no_decay = {"mlp.down", "embed_tokens"};
    config.placement = static_cast<CollectivePlacement>(pick(0, 3));
    config.keep_gathered = pick(0, model.layers);
    const bool in_windows = config.optimizer != Optimizer::muon;
    if (config.strategy == Strategy::optim_grads_params && in_windows)
      config.gather = static_cast<Transport>(pick(0, 2));
    if (config.strategy >= Strategy::optim_grads && in_windows)
      config.reduce = static_cast<Transport>(pick(0, 2));
    if (*rc::gen::arbitrary<bool>()) config.clip = Rational{0, 1};
    config.deterministic = *rc::gen::arbitrary<bool>();
    config.document_mask = *rc::gen::arbitrary<bool>();
    if (pick(0, 4) == 0) draw_scaled(config);
    config.logits_chunk = pick(1, 30);
    switch (pick(0, 4)) {
      case 0: config.frozen = {"embed_tokens"}; break;
      case 1: config.frozen = {"layers.0."}; break;
      case 2: config.frozen = {"layernorm", "mlp"}; break;
      default: break;
    }
    draw_family(config, models);
    const bool of_fp8 = pick(0, 3) == 0;
    if (of_fp8)
      draw_fp8(config);
    else if (!lora_targets(config.model).empty() && pick(0, 4) == 0)
      draw_lora(config);
    return config;
  });
}

/// Whether ranks of tp can share the blocks of a model, with other sizes.
inline bool may_share_blocks(const ModelShape& model) {
  const FamilyTraits& traits = model.traits();
  return traits.rotates && traits.input_norms &&
         (!traits.latent_attention || model.query_latent != 0) &&
         !(model.qk_norm && traits.whole_qk_norms);
}

/// Sizes of a model that ranks of tp, and of cp, divide.
inline void draw_shares(ModelShape& model, std::int64_t tp, std::int64_t cp) {
  const auto pick = [](std::int64_t low, std::int64_t high) {
    return *rc::gen::inRange<std::int64_t>(low, high + 1);
  };
  model.kv_heads = tp * cp * pick(1, 2);
  model.heads = model.kv_heads * (model.traits().latent_attention ? 1 : pick(1, 2));
  if (model.experts == 0 || !model.dense_layers.empty()) model.intermediate = tp * pick(1, 12);
  model.vocab = tp * pick(1, 19);
}

/// any_config() with two or three ranks on tp, as far as these can be combined with what it draws.
inline PlanConfig over_tensor_ranks(PlanConfig config) {
  const std::int64_t ranks = *rc::gen::element<std::int64_t>(2, 2, 3);
  const auto drop_adapters = [&] {
    config.lora_rank = 0;
    config.lora_alpha = {0, 1};
    config.lora_targets.clear();
    for (std::vector<std::string>* names : {&config.frozen, &config.lr_scale, &config.no_decay})
      std::erase_if(*names, [](const std::string& name) { return name.starts_with("lora_"); });
  };
  if (!may_share_blocks(config.model)) {
    drop_adapters();
    config.model = small_shape(config.model.layers);
    for (std::vector<std::string>* names : {&config.frozen, &config.lr_scale, &config.no_decay})
      names->clear();
    if (*rc::gen::arbitrary<bool>()) config.frozen = {"layernorm", "mlp"};
  }
  ModelShape& model = config.model;
  const bool shares_sequences = !model.qk_norm && !model.traits().sinks &&
                                !model.traits().latent_attention && *rc::gen::inRange(0, 3) == 0;
  const std::int64_t parts = shares_sequences ? 2 : 1;
  draw_shares(model, ranks, parts);
  if (model.router_aux_loss.num != 0) config.micro_batch = 1;
  config.seq_len = ranks * parts * *rc::gen::inRange<std::int64_t>(1, 8);
  if (shares_sequences) {
    config.cp_comm =
        *rc::gen::element(ContextExchange::a2a, ContextExchange::all_gather, ContextExchange::p2p);
    config.seq_len *= 2;  // chunks
    model.max_seq_len = std::max(model.max_seq_len, config.seq_len);
    config.micro_batch = 1;
  }
  if (shares_sequences) drop_adapters();
  const bool may_part_keys = !shares_sequences && !config.has_lora() && !model.traits().sinks &&
                             !model.traits().latent_attention;
  if (may_part_keys && model.head_dim % ranks == 0 && *rc::gen::inRange(0, 3) == 0)
    model.kv_heads = 1;
  config.mesh = data_parallel_mesh(config.mesh.size(Axis::dp_outer),
                                   std::min<std::int64_t>(config.mesh.size(Axis::dp_shard), 8));
  config.mesh.resize(Axis::tp, ranks);
  config.mesh.resize(Axis::cp, parts);
  config.strategy = std::max(config.strategy, Strategy::optim);
  config.outer_strategy = Strategy::no_shard;
  config.expert_strategy.reset();
  config.expert_parallel = 0;
  config.capacity_factor = {};
  config.layout = LayoutRule::packed;
  config.gather = config.reduce = Transport::nccl;
  config.grad_slots = std::max<std::int64_t>(config.grad_slots, model.tied_embeddings ? 2 : 1);
  if (orthogonalises(config.optimizer)) config.optimizer = Optimizer::adamw;
  if (config.state_dtype == StateDtype::blockwise8) config.state_dtype = StateDtype::full;
  no_fp8(config);
  config.base_dtype = BaseDType::compute;
  std::vector<std::int64_t> able;  ///< ranks that may divide experts
  for (std::int64_t ep = 2; ep <= model.experts; ++ep)
    if (model.experts % ep == 0 && config.mesh.size(Axis::dp_shard) * ranks * parts % ep == 0)
      able.push_back(ep);
  if (able.empty() || *rc::gen::inRange(0, 4) == 0) return config;
  config.expert_parallel = *rc::gen::elementOf(able);
  config.mesh = with_expert_grid(config.mesh, config.expert_parallel);
  if (*rc::gen::arbitrary<bool>()) config.capacity_factor = Rational{1, 1};
  return config;
}

/// The same on stages of a pipeline, some of them with ranks of tp, without what stages do not support.
inline PlanConfig over_stages(PlanConfig config) {
  if (*rc::gen::inRange(0, 4) == 0) config = over_tensor_ranks(std::move(config));
  const auto pick = [](std::int64_t low, std::int64_t high) {
    return *rc::gen::inRange<std::int64_t>(low, high + 1);
  };
  const std::int64_t stages = pick(2, 4);
  ModelShape& model = config.model;
  const std::int64_t layers = model.layers;
  model.tied_embeddings = false;
  model.layers = stages * pick((layers + stages - 1) / stages, 3);
  config.microbatches = pick(1, 7);
  config.schedule = *rc::gen::element(PipelineSchedule::one_f_one_b, PipelineSchedule::gpipe,
                                      PipelineSchedule::interleaved, PipelineSchedule::zb_h1);
  if (config.schedule == PipelineSchedule::zb_h1 && config.strategy > Strategy::optim) {
    config.strategy = Strategy::optim;
    config.outer_strategy = Strategy::no_shard;
  }
  if (config.schedule == PipelineSchedule::interleaved) {
    config.virtual_stages = model.layers / stages;
    config.microbatch_group = pick(stages, stages + 2);
    config.microbatches = config.microbatch_group * pick(1, 2);
  } else if (pick(0, 2) == 0) {
    config.layers_of_stages.assign(static_cast<std::size_t>(stages), 1);
    config.layers_of_stages.back() = model.layers - (stages - 1);
  }
  Mesh mesh = data_parallel_mesh(std::min<std::int64_t>(config.mesh.size(Axis::dp_outer), 2),
                                 std::min<std::int64_t>(config.mesh.size(Axis::dp_shard), 3));
  for (const Axis axis : {Axis::cp, Axis::tp}) mesh.resize(axis, config.mesh.size(axis));
  mesh.resize(Axis::pp, stages);
  config.mesh = mesh;
  if (config.mesh.size(Axis::dp_outer) == 1) config.outer_strategy = Strategy::no_shard;
  config.expert_strategy.reset();
  config.expert_parallel = 0;
  config.capacity_factor = {};
  config.gather = config.reduce = Transport::nccl;
  config.placement = CollectivePlacement::earliest;
  config.keep_gathered = 0;
  config.frozen.clear();
  config.loss_scale = {};
  config.loss_scale_window = 0;
  if (config.fp8 == Fp8Recipe::delayed) no_fp8(config);
  config.fp8_gather = false;
  config.base_dtype = BaseDType::compute;
  return config;
}

}  // namespace mfsdp::test
