#include "sim/engines/engine.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "sim/engines/fsdp2_options.hpp"
#include "sim/engines/mcore_parallel.hpp"
#include "sim/engines/mcore_stage.hpp"
#include "sim/engines/rank_model.hpp"

namespace mfsdp {

tl::unexpected<Error> cannot_predict(EngineKind engine, const char* flag, std::string_view what,
                                     std::string_view instead) {
  return fail(flag, fmt::format("--engine {} cannot be predicted with {} yet; {}",
                                to_string(engine), what, instead));
}

tl::unexpected<Error> does_otherwise(EngineKind engine, const char* flag, std::string_view does) {
  return fail(flag, fmt::format("--engine {} {}", to_string(engine), does));
}

tl::unexpected<Error> no_recomputation(EngineKind engine) {
  return cannot_predict(engine, "--recompute", "recomputation",
                        fmt::format("take none, or {}", to_string(EngineKind::megatron_fsdp_v2)));
}

std::string only_gradients_text(EngineKind engine) {
  return fmt::format("keeps and reduces gradients in {}",
                     to_string(*traits_of(engine).only_gradients));
}

namespace {

/// Names the FP8 that is described, and its source.
std::string_view fp8_basis(EngineFamily family) {
  if (family == EngineFamily::mcore)
    return "FP8: --fp8-format hybrid --fp8-recipe tensorwise without --fp8-param-gather; "
           "Transformer Engine keeps two casts of each weight beside it, made once a step";
  return "FP8: torchao's Float8Linear, tensorwise, from its source alone; no run of it was "
         "measured";
}

std::string model_basis(EngineKind engine, const ModelShape& model) {
  const EngineTraits& traits = traits_of(engine);
  if (traits.family == EngineFamily::fsdp2 && model.experts != 0)
    return "experts, their exchange and their units from torchtitan's source (b5bcd76) alone; no "
           "run of them was measured";
  const bool is_mpt = model.family == Family::gpt2 && traits.family != EngineFamily::mcore;
  if (!is_mpt) return std::string(traits.basis);
  return fmt::format(
      "{}{}GPT's blocks from the source of MosaicML's llm-foundry (MPT) alone; no run of them was "
      "measured",
      traits.basis, traits.basis.empty() ? "" : "; ");
}

}  // namespace

std::string engine_basis(EngineKind engine, const PlanConfig& config) {
  const EngineTraits& traits = traits_of(engine);
  if (traits.runs_plans) return std::string(traits.basis);
  std::string basis = model_basis(engine, config.model);
  if (config.has_fp8())
    basis += fmt::format("{}{}", basis.empty() ? "" : "; ", fp8_basis(traits.family));
  return basis;
}

bool recomputes_modules(EngineKind engine, const ModelShape& model) {
  return traits_of(engine).recomputes_expert_modules && model.experts != 0;
}

namespace {

/// Whether mcore's blocks are modelled for the family.
bool mcore_has(const ModelShape& model) {
  const FamilyTraits& traits = model.traits();
  return !traits.whole_qk_norms && traits.input_norms;
}

/// A GPT, where the engine has its blocks.
bool is_known_gpt(EngineKind engine, const ModelShape& model) {
  return model.family == Family::gpt2 && traits_of(engine).has_gpt;
}

/// The flags that describe a family's blocks to FSDP2.
constexpr std::string_view kOtherModules =
    "take --modules transformers, or leave --engine out for others";

/// Granite's factors.
bool scales_activations(const ModelShape& model) {
  return model.embedding_multiplier.num != 0 || model.residual_multiplier.num != 0 ||
         model.logit_multiplier.num != 0;
}

/// Engines with experts also support the other features of families that have experts. For other
/// engines check_model() names the experts.
Result<void> check_family(EngineKind engine, const ModelShape& model) {
  if (model.index_heads != 0)
    return cannot_predict(engine, "--model", "sparse attention", "leave --engine out");
  if (scales_activations(model))
    return cannot_predict(engine, "--model", "scaled activations", "leave --engine out");
  if (!model.nope_layers.empty())
    return cannot_predict(engine, "--model", "layers without RoPE", "leave --engine out");
  if (traits_of(engine).has_experts) {
    if (mcore_has(model)) return {};
    return cannot_predict(
        engine, "--model", fmt::format("models of the family {}", to_string(model.family)),
        "it is predicted for GPT-2, Llama, Mistral, Qwen2, Qwen3, Mixtral, GPT-OSS and "
        "DeepSeek; leave --engine out for others");
  }
  if (model.family == Family::gpt2)
    return cannot_predict(engine, "--model", "GPT's blocks",
                          "take mcore, fsdp1 or fsdp2, or leave --engine out");
  if (model.experts == 0 && model.family != Family::llama)
    return cannot_predict(
        engine, "--model", fmt::format("models of the family {}", to_string(model.family)),
        model.family == Family::olmo2 && has_option(engine, "--modules")
            ? kOtherModules
            : "it is predicted for Llama, Mistral, Qwen2 and Qwen3; leave --engine out for others");
  return {};
}

/// Llama's blocks, optionally with norms of heads and biases of query, key and value.
void check_model(EngineKind engine, const ModelShape& model, Reasons& reasons) {
  const std::string_view instead =
      has_option(engine, "--modules") ? kOtherModules : "leave --engine out";
  const auto no = [&](std::string_view what, std::string_view otherwise) {
    reasons.add(cannot_predict(engine, "--model", what, otherwise));
  };
  if (is_known_gpt(engine, model)) return;
  if (!reasons.add(check_family(engine, model))) return;  // its blocks are not Llama's at all
  if (model.experts != 0 && !traits_of(engine).has_experts)
    no("mixtures of experts",
       !mcore_has(model) ? "leave --engine out"
       : has_option(engine, "--modules")
           ? "leave --engine out, take mcore or, for Qwen3 and DeepSeek, --modules torchtitan"
           : "leave --engine out, or take mcore");
  if (model.output_norms || model.zero_centered_norms || model.scaled_embedding)
    no("Gemma's norms and scaled embeddings", instead);
  if (model.activation != Activation::silu || !model.traits().gated)
    no("activations other than SwiGLU", instead);
  if (model.score_cap.num != 0 || model.logit_cap.num != 0)
    no("logit softcaps", "leave --engine out");
  if (model.rotary_dim != 0 && !model.traits().latent_attention)
    no("rotary embeddings on a part of each head", "leave --engine out");
  if (!model.sliding_layers.empty() && !traits_of(engine).has_sliding_windows)
    no("sliding windows", has_option(engine, "--modules")
                              ? "leave --engine out, or take --modules transformers, or mcore"
                              : "leave --engine out, or take mcore");
}

/// Blocks of transformers' classes: also OLMo 2's, Gemma's and Phi-3's.
void check_transformers(EngineKind engine, const ModelShape& model, Reasons& reasons) {
  const auto no = [&](std::string_view what) {
    reasons.add(cannot_predict(engine, "--model", what));
  };
  if (model.experts != 0) no("mixtures of experts");
  if (model.family != Family::llama && model.family != Family::olmo2 && model.experts == 0)
    no(fmt::format("models of the family {}", to_string(model.family)));
  if (!model.traits().gated) no("MLPs without a gate");
  if (!model.nope_layers.empty()) no("layers without RoPE");
  if (scales_activations(model)) no("scaled activations");
  if (model.score_cap.num != 0 || model.logit_cap.num != 0) no("logit softcaps");
  if (model.rotary_dim != 0 && !model.traits().latent_attention)
    no("rotary embeddings on a part of each head");
}

/// torchtitan's Qwen3 and DeepSeek-V3 with experts, operator by operator.
void check_titan_experts(EngineKind engine, const PlanConfig& config, const Fsdp2Options& options,
                         Reasons& reasons) {
  const ModelShape& model = config.model;
  const auto no = [&](const char* flag, std::string_view what,
                      std::string_view instead = "leave --engine out, or take mcore") {
    reasons.add(cannot_predict(engine, flag, what, instead));
  };
  const bool is_qwen3 = model.family == Family::llama && model.qk_norm && !model.qkv_bias &&
                        model.shared_intermediate == 0 && model.dense_layers.empty() &&
                        model.rotary_dim == 0 && !model.sigmoid_routing;
  if (!is_qwen3 && model.family != Family::deepseek)
    no("--model", "torchtitan's experts of models other than Qwen3 and DeepSeek");
  if (!model.sliding_layers.empty()) no("--model", "sliding windows");
  if (model.index_heads != 0) no("--model", "sparse attention", "leave --engine out");
  if (scales_activations(model)) no("--model", "scaled activations", "leave --engine out");
  if (!model.nope_layers.empty()) no("--model", "layers without RoPE", "leave --engine out");
  if (traits_of(engine).compiles_blocks)
    no("--modules", "compiled blocks with experts", "take --engine fsdp2");
  if (options.selective_ac.by_operator)
    no("--selective-ac", "recomputation by operator of experts", "take --recompute full or none");
  if (options.units.blocks != 1 || options.units.parts_of_blocks)
    no("--fsdp-unit", "units of several blocks or parts of blocks with experts",
       "take block or block,ends");
  if (config.mesh.size(Axis::dp_outer) > 1 && config.is_expert_parallel())
    no("--outer-dp", "replicas of expert-parallel ranks", "take --outer-dp 1");
}

/// torchtitan's Llama.
void check_torchtitan(EngineKind engine, const ModelShape& model, Reasons& reasons) {
  if (model.qkv_bias || model.qk_norm)
    reasons.add(cannot_predict(engine, "--modules",
                               "torchtitan's models other than Llama, without biases and norms of "
                               "heads",
                               "take --modules transformers"));
}

/// Rejects bf16 weights between steps, as model.to(bfloat16) before fully_shard produces them.
tl::unexpected<Error> only_fp32_weights(EngineKind engine) {
  return cannot_predict(
      engine, "--main-dtype", "weights other than fp32 between steps",
      "it assumes 16 bytes a parameter for weight, gradient and AdamW's states, but "
      "model.to(bfloat16) before fully_shard takes 8; leave --engine out to predict mfsdp-exec, "
      "which supports both");
}

/// mfsdp's default, fp32, stands for the engine's only type.
void check_gradient_types(EngineKind engine, const PlanConfig& config, Reasons& reasons) {
  const auto is_possible = [&](DType type) {
    return type == DType::fp32 || type == *traits_of(engine).only_gradients;
  };
  if (!is_possible(config.grad_dtype))
    reasons.add(does_otherwise(engine, "--grad-dtype", only_gradients_text(engine)));
  if (!is_possible(config.reduce_dtype))
    reasons.add(does_otherwise(engine, "--reduce-dtype", only_gradients_text(engine)));
}

/// Refuses FP8 that torchao and Transformer Engine do not have, and that is not described.
void check_fp8(EngineKind engine, const PlanConfig& config, Reasons& reasons) {
  if (!config.has_fp8()) return;
  const EngineTraits& traits = traits_of(engine);
  if (!traits.has_fp8) {
    const std::string_view compiled = traits.family == EngineFamily::fsdp2
                                          ? "take fsdp2-compile: torchao's casts are compiled"
                                          : "take fsdp2-compile or mcore, or leave --engine out";
    reasons.add(cannot_predict(engine, "--fp8", "GEMMs in FP8", compiled));
    return;
  }
  if (config.fp8 != Fp8Recipe::current)
    reasons.add(cannot_predict(engine, "--fp8", "other scales than those of --fp8 current",
                               "take --fp8 current, or leave --engine out"));
  if (config.fp8_gather)
    reasons.add(cannot_predict(
        engine, "--fp8-gather", "gathers of casts",
        traits.family == EngineFamily::fsdp2
            ? "take --engine-option enable_fsdp_float8_all_gather=true, as torchao calls it"
            : "leave it out"));
  if (config.fp8_accumulate != Fp8Accumulate::fast_forward)
    reasons.add(does_otherwise(engine, "--fp8-accumulate", "accumulates fast in forward alone"));
}

void check_types(EngineKind engine, const PlanConfig& config, Reasons& reasons) {
  if (config.param_dtype != DType::bf16)
    reasons.add(cannot_predict(engine, "--param-dtype", "blocks in other types than bf16"));
  check_fp8(engine, config, reasons);
  const bool narrow = config.main_dtype == DType::bf16 && traits_of(engine).has_bf16_weights;
  if (config.main_dtype != DType::fp32 && !narrow) reasons.add(only_fp32_weights(engine));
  if (narrow) {
    // Gradients and states follow the weights, whatever their flags' defaults.
  } else if (traits_of(engine).keeps_main_dtype) {
    if (config.grad_dtype != DType::fp32)
      reasons.add(does_otherwise(engine, "--grad-dtype",
                                 "keeps gradients in the type of its weights between steps, fp32"));
  } else if (traits_of(engine).only_gradients) {
    check_gradient_types(engine, config, reasons);
  } else if (config.grad_dtype != DType::fp32 && config.grad_dtype != DType::bf16) {
    reasons.add(
        cannot_predict(engine, "--grad-dtype", "gradients in other types than fp32 and bf16"));
  }
  if (traits_of(engine).reduces_in_grad_dtype && config.reduce_dtype != config.grad_dtype)
    reasons.add(does_otherwise(engine, "--reduce-dtype",
                               "reduces gradients in their own type (--grad-dtype)"));
  if (config.reduce_dtype != DType::fp32 && config.reduce_dtype != DType::bf16)
    reasons.add(
        cannot_predict(engine, "--reduce-dtype", "reductions in other types than fp32 and bf16"));
  if (config.scales_loss())
    reasons.add(
        does_otherwise(engine, "--loss-scale", "trains in bf16, which needs no loss scale"));
  if (config.state_dtype != StateDtype::full && !(narrow && config.state_dtype == StateDtype::bf16))
    reasons.add(
        cannot_predict(engine, "--state-dtype", "optimizer states in other types than fp32"));
}

/// Checks ZeRO's stages, as strategies.
Result<void> check_strategy(EngineKind engine, Strategy strategy, std::int64_t outer) {
  const auto otherwise = [&](std::string_view does) {
    return does_otherwise(engine, "--strategy", does);
  };
  // mfsdp's default, optim_grads_params, stands for the engine's only strategy.
  if (strategy == Strategy::optim_grads_params) return {};
  if (const auto only = traits_of(engine).only_strategy) {
    if (strategy != *only) return otherwise(traits_of(engine).shards);
    return {};
  }
  switch (traits_of(engine).family) {
    case EngineFamily::mfsdp:
    case EngineFamily::mcore:
    case EngineFamily::ddp:
    case EngineFamily::deepspeed_states:
    case EngineFamily::deepspeed_weights: return {};
    case EngineFamily::fsdp1:
    case EngineFamily::fsdp2:
      if (strategy != Strategy::optim_grads) return otherwise(traits_of(engine).shards);
      return {};
    case EngineFamily::megatron_fsdp_v1:
    case EngineFamily::megatron_fsdp_v2: break;
  }
  if (strategy == Strategy::no_shard)
    return cannot_predict(engine, "--strategy", "no_shard",
                          "take optim, optim_grads or optim_grads_params");
  if (outer == 1) return {};
  if (traits_of(engine).family == EngineFamily::megatron_fsdp_v1)
    return cannot_predict(engine, "--strategy",
                          "--outer-dp with other strategies than optim_grads_params");
  if (strategy != Strategy::optim) return {};
  return otherwise(
      "with --outer-dp reduces gradients in every microbatch (optim_grads or "
      "optim_grads_params)");
}

/// Checks expert parallelism. Engines that have it shard experts like other weights, and their
/// exchange of tokens has no capacity.
void check_dealt_experts(EngineKind engine, const PlanConfig& config, Reasons& reasons) {
  if (config.capacity_factor.num != 0)
    reasons.add(
        does_otherwise(engine, "--capacity-factor", "drops no tokens and has no capacity limit"));
  if (!config.expert_strategy) return;
  if (traits_of(engine).family == EngineFamily::fsdp2)
    reasons.add(does_otherwise(engine, "--expert-strategy", "shards experts as all other weights"));
  else if (*config.expert_strategy != Strategy::optim)
    reasons.add(does_otherwise(engine, "--expert-strategy",
                               "shards only the optimizer's states of experts (optim)"));
}

}  // namespace

bool may_share(EngineKind engine, Modules modules, Axis axis) {
  const EngineFamily family = traits_of(engine).family;
  if (family == EngineFamily::mcore) return true;
  return family == EngineFamily::fsdp2 && modules == Modules::torchtitan && axis == Axis::tp;
}

namespace {

/// torchtitan's models over tp: sequence parallel, with loss_parallel.
void check_titan_parallel(EngineKind engine, const PlanConfig& config, const Fsdp2Options& options,
                          Reasons& reasons) {
  const std::int64_t tp = config.mesh.size(Axis::tp);
  const ModelShape& model = config.model;
  const auto no = [&](std::string_view what) {
    reasons.add(cannot_predict(engine, "--tp", what, "take --tp 1"));
  };
  if (tp == 1) return;
  if (model.experts != 0) return no("experts");
  if (model.tied_embeddings) return no("an embedding that is the head, too");
  if (config.has_fp8()) return no("--fp8");
  if (options.units.parts_of_blocks) return no("parts of blocks as units");
  check_shares("--tp", tp,
               {{"attention heads", model.heads},
                {"key-value heads", model.kv_heads},
                {"features of the MLP", model.intermediate},
                {"ids of the vocabulary", model.vocab},
                {"tokens of a sequence (--seq-len)", config.seq_len}},
               reasons);
}

/// Whether the engine is described on all axes of the mesh.
void check_axes(EngineKind engine, const PlanConfig& config, Modules modules, Reasons& reasons) {
  std::int64_t described = config.mesh.size(Axis::dp_shard) * config.mesh.size(Axis::dp_outer);
  for (const Axis axis : {Axis::pp, Axis::cp, Axis::tp})
    if (may_share(engine, modules, axis)) described *= config.mesh.size(axis);
  if (described == config.mesh.world_size()) return;
  const bool has_stages = config.mesh.size(Axis::pp) > 1;
  const bool shares_sequences = config.mesh.size(Axis::cp) > 1;
  const bool shares_blocks = config.mesh.size(Axis::tp) > 1;
  std::string_view instead = "leave --engine out";
  if (has_stages || shares_sequences) {
    instead = "leave --engine out, or take mcore";
  } else if (shares_blocks) {
    instead = traits_of(engine).family == EngineFamily::fsdp2
                  ? "leave --engine out, take mcore, or add --modules torchtitan"
                  : "leave --engine out, or take mcore";
  }
  reasons.add(cannot_predict(engine,
                             has_stages         ? "--pp"
                             : shares_sequences ? "--cp"
                             : shares_blocks    ? "--tp"
                                                : "--gpus",
                             "parallelism other than data parallelism", instead));
}

void check_parallelism(EngineKind engine, const PlanConfig& config, Modules modules,
                       Reasons& reasons) {
  check_axes(engine, config, modules, reasons);
  const std::int64_t outer = config.mesh.size(Axis::dp_outer);
  if (outer > 1 && !traits_of(engine).has_replicas)
    reasons.add(cannot_predict(engine, "--outer-dp", "replicas"));
  if (outer > 1 && config.outer_strategy != Strategy::no_shard)
    reasons.add(does_otherwise(engine, "--outer-strategy",
                               "shards nothing over its outer axis (no_shard)"));
  reasons.add(check_strategy(engine, config.strategy, outer));
  check_dealt_experts(engine, config, reasons);
  if (config.optimizer != Optimizer::adamw)
    reasons.add(cannot_predict(engine, "--optimizer", "optimizers other than AdamW"));
  if (config.has_lora()) reasons.add(cannot_predict(engine, "--lora-rank", "LoRA's adapters"));
  if (!config.frozen.empty()) reasons.add(cannot_predict(engine, "--freeze", "frozen parameters"));
  if (config.document_mask)
    reasons.add(cannot_predict(engine, "--document-mask", "masks between documents"));
}

/// Checks the options of FSDP2 against the configuration.
void check_options(EngineKind engine, const PlanConfig& config, const Fsdp2Options& options,
                   Reasons& reasons) {
  if (options.selective_ac.is_given() && config.recompute.kind == Recompute::full)
    reasons.add(fail("--selective-ac", "contradicts --recompute full; give one of them"));
  if (options.selective_ac.by_operator && options.modules == Modules::fused)
    reasons.add(cannot_predict(engine, "--selective-ac", "recomputation by operator of fused GEMMs",
                               "add --modules torchtitan or --modules transformers"));
  if (config.has_fp8() && options.units.parts_of_blocks)
    reasons.add(cannot_predict(engine, "--fsdp-unit", "parts of blocks in FP8", "take block"));
  for (const auto& [is_given, flag] : {std::pair(options.bf16_loss, "--bf16-loss"),
                                       std::pair(options.holds_logits, "--hold-logits")})
    if (is_given && options.modules == Modules::fused)
      reasons.add(fail(flag,
                       "needs --modules transformers or --modules torchtitan, whose loss is not "
                       "inside the model"));
  if (options.units.parts_of_blocks &&
      (options.modules == Modules::fused || traits_of(engine).compiles_blocks ||
       options.selective_ac.is_given() || config.recompute.kind == Recompute::full))
    reasons.add(cannot_predict(engine, "--fsdp-unit",
                               "parts of blocks that are fused, compiled or recomputed",
                               "take --engine fsdp2 --modules transformers --recompute none"));
  if (options.units.ends_apart && config.model.family == Family::gpt2)
    reasons.add(cannot_predict(engine, "--fsdp-unit", "ends of a GPT as units of their own"));
  else if (options.units.ends_apart && config.model.tied_embeddings)
    reasons.add(fail("--fsdp-unit",
                     "ends cannot be apart: the embedding is the head too, and one unit has it"));
  if (options.units.blocks > config.model.layers)
    reasons.add(fail("--fsdp-unit", fmt::format("expected at most the model's {} blocks, got {}",
                                                config.model.layers, options.units.blocks)));
}

/// Rejects cases without recorded runs.
void check_recorded(EngineKind engine, const PlanConfig& config, Reasons& reasons) {
  const EngineTraits& traits = traits_of(engine);
  if (traits.needs_two_shards && config.mesh.size(Axis::dp_shard) == 1)
    reasons.add(cannot_predict(engine, "--gpus", "a single rank that shards", "take two or more"));
  if (!traits.has_qk_norms && config.model.qk_norm)
    reasons.add(cannot_predict(
        engine, "--model", "norms of query and key heads",
        traits.eager_as ? fmt::format("leave --engine out, or take {}", to_string(*traits.eager_as))
                        : "leave --engine out"));
  if (!traits.has_recomputation && config.recompute.kind == Recompute::full)
    reasons.add(no_recomputation(engine));
  else if (config.recompute.kind == Recompute::full && config.recompute.full_blocks != 0 &&
           !traits.recomputes_some_blocks)
    reasons.add(cannot_predict(engine, "--recompute", "recomputation of some blocks alone",
                               "take none or full"));
}

/// Rejects cases of Megatron-FSDP's first version that were not recorded, or that follow other
/// rules.
void check_first_megatron(EngineKind engine, const PlanConfig& config, Reasons& reasons) {
  const bool whole = config.strategy == Strategy::optim_grads_params;
  if (!whole && config.allocator == AllocatorPolicy::double_buffer)
    reasons.add(cannot_predict(engine, "--allocator",
                               "double buffers with other strategies than optim_grads_params",
                               "leave --allocator out"));
  if (config.strategy == Strategy::optim && config.grad_dtype != config.reduce_dtype)
    reasons.add(
        cannot_predict(engine, "--reduce-dtype",
                       "--strategy optim with reductions in another type than gradients have",
                       "give both flags one type"));
  if (config.model.tied_embeddings)
    reasons.add(cannot_predict(engine, "--model", "an embedding that is the head, too"));
}

}  // namespace

Result<PlanConfig> engine_config(EngineKind engine, const PlanConfig& config,
                                 const EngineOptions& options) {
  const EngineTraits& traits = traits_of(engine);
  Reasons reasons;
  reasons.add(options.check(engine));
  reasons.add(options.check_uses(option_uses(config)));
  if (traits.runs_plans) {
    MFSDP_TRY(reasons.verdict());
    return config;
  }
  const auto modules =
      has_option(engine, "--modules") ? options.get<Modules>(engine, "--modules") : Modules::fused;
  if (modules == Modules::transformers) {
    check_transformers(engine, config.model, reasons);
  } else if (modules == Modules::torchtitan && config.model.experts != 0) {
    check_titan_experts(engine, config, Fsdp2Options(engine, options), reasons);
  } else {
    check_model(engine, config.model, reasons);
    if (modules == Modules::torchtitan) check_torchtitan(engine, config.model, reasons);
  }
  check_types(engine, config, reasons);
  check_parallelism(engine, config, modules, reasons);
  check_recorded(engine, config, reasons);
  if (traits.family == EngineFamily::fsdp2) {
    check_options(engine, config, Fsdp2Options(engine, options), reasons);
    if (modules == Modules::torchtitan)
      check_titan_parallel(engine, config, Fsdp2Options(engine, options), reasons);
  }
  if (traits.family == EngineFamily::mcore) {
    check_mcore_parallel(engine, config, options, reasons);
    check_mcore_stages(engine, config, options, reasons);
  }
  if (traits.family == EngineFamily::megatron_fsdp_v1)
    check_first_megatron(engine, config, reasons);
  MFSDP_TRY(reasons.verdict());
  PlanConfig own = config;
  if (traits.only_strategy) own.strategy = *traits.only_strategy;
  if (traits.only_gradients) own.grad_dtype = own.reduce_dtype = *traits.only_gradients;
  own.expert_strategy.reset();
  if (traits.reduces_in_bf16) own.reduce_dtype = DType::bf16;
  if (!has_choice(engine, "--allocator") || own.allocator != AllocatorPolicy::double_buffer)
    own.allocator = AllocatorPolicy::best_fit;
  if (own.main_dtype == DType::bf16) {
    own.grad_dtype = DType::bf16;
    own.state_dtype = StateDtype::bf16;
  }
  if (own.recompute.kind == Recompute::selective && !recomputes_modules(engine, config.model))
    own.recompute = {.kind = Recompute::none};
  own.logits_chunk = config.tokens_per_microbatch();
  return own;
}

}  // namespace mfsdp
