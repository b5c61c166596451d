// Gradients of every parameter as a plan's training step leaves them, in double throughout, against
// finite differences of the loss that the eval plan of one rank sums up: all kinds of models,
// strategies and recompute policies.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/model/lora.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/samples.hpp"
#include "tests/verify/cpu/kernels/serial_run.hpp"
#include "tests/verify/cpu/oracle/training_step.hpp"

namespace mfsdp {
namespace {

using test::Tensors;
using test::Values;

/// The loss of all ranks' microbatches by the eval plan on one rank.
class Loss {
 public:
  Loss(const PlanConfig& trained, test::Batches batches)
      : ranks_(trained.mesh.world_size()),
        program_(build_program(alone(trained), {}).value()),
        run_(program_),
        batches_(std::move(batches)) {}

  /// The weights of a parameter, to be set and changed.
  double* weights(const std::string& name) {
    for (const Group& group : program_.groups)
      for (const PlacedParameter& parameter : group.parameters)
        if (parameter.name == name)
          return run_.data<double>(
                     program_.units[group.unit.value].name +
                     (group.requires_grad ? ".model_weight" : ".frozen.model_weight")) +
                 parameter.offset;
    throw std::logic_error("no parameter " + name);
  }

  double operator()() {
    double sum = 0;
    const PlanConfig& config = program_.config;
    const auto count =
        static_cast<std::size_t>(config.token_rows() * config.tokens_per_microbatch());
    for (std::int64_t rank = 0; rank < ranks_; ++rank)
      for (std::int64_t m = 0; m < program_.config.microbatches; ++m) {
        run_.run("eval", 0,
                 [&](std::int32_t* to, std::int64_t) { batches_(rank, m, {to, count}); });
        sum += run_.data<double>("loss_sums")[0];
      }
    return sum;
  }

 private:
  static PlanConfig alone(PlanConfig config) {
    config.mesh = {};
    config.outer_strategy = Strategy::no_shard;
    return config;
  }

  std::int64_t ranks_;
  Program program_;
  test::SerialRun run_;
  test::Batches batches_;
};

/// The derivative of `loss` in `value` by central differences of five points, with an error of
/// step^4 / 30 times the fifth derivative.
double five_points(Loss& loss, double& value, double step) {
  const double middle = value;
  const auto at = [&](double steps) {
    value = middle + steps * step;
    return loss();
  };
  const double slope = (8 * (at(1) - at(-1)) - (at(2) - at(-2))) / (12 * step);
  value = middle;
  return slope;
}

/// Halves the step until two slopes agree: where a norm's rows are close to 0 the loss bends
/// sharply. A loss of some hundreds is right to about 1e-13; a step of 2e-3 makes that 1e-10 of the
/// slope, the shortest one, of 3e-5, makes it 5e-9.
double derivative(Loss& loss, double& value) {
  double step = 2e-3;
  double slope = five_points(loss, value, step);
  for (int halvings = 0; halvings < 6; ++halvings) {
    step /= 2;
    const double finer = five_points(loss, value, step);
    const bool agree = std::fabs(finer - slope) <= 1e-8 * std::max(1.0, std::fabs(finer));
    slope = finer;
    if (agree) break;
  }
  return slope;
}

double norm(const Values& values) { return std::sqrt(test::dot(values, values)); }

Values minus(Values a, const Values& b) {
  for (std::size_t i = 0; i < a.size(); ++i) a[i] -= b[i];
  return a;
}

/// Compares every element of every trainable parameter.
void check_gradients(const PlanConfig& config, std::uint32_t seed) {
  const Program program = build_program(config, {}).value();
  const Tensors weights = test::random_weights(program, seed);
  const test::Batches batches = test::random_batches(program, seed);
  const test::StepOutcome step = test::TrainingStep(program, batches).run(weights);
  Loss loss(config, batches);
  for (const auto& [name, values] : weights) std::ranges::copy(values, loss.weights(name));
  EXPECT_NEAR(step.loss, loss(), 1e-6 * loss());  // the report is fp32
  for (const auto& [name, gradient] : step.gradients) {
    double* const weight = loss.weights(name);
    Values expected;
    for (std::size_t i = 0; i < gradient.size(); ++i)
      expected.push_back(derivative(loss, weight[i]));
    // Rounding errors of the differences count where a gradient is 0, such as that of a query with
    // only one key.
    const double noise = 5e-9 * std::sqrt(static_cast<double>(gradient.size()));
    EXPECT_LT(norm(minus(gradient, expected)), 1e-6 * norm(expected) + noise)
        << name << ", whose gradient has norm " << norm(expected);
  }
}

/// A random model and run of a few hundred parameters; the seed determines its options.
PlanConfig random_config(std::uint32_t seed) {
  test::RandomValues random(seed);
  const auto pick = [&](std::int32_t low, std::int32_t high) {
    return low + random.below(high - low + 1);
  };
  PlanConfig config;
  config.param_dtype = config.main_dtype = config.grad_dtype = config.reduce_dtype = DType::fp64;
  ModelShape& model = config.model;
  model.layers = pick(1, 2);
  model.kv_heads = pick(1, 2);
  model.heads = model.kv_heads * pick(1, 3);
  model.head_dim = 2 * pick(1, 2);
  model.hidden = pick(3, 7);
  model.intermediate = pick(1, 7);
  model.vocab = pick(3, 9);
  model.max_seq_len = 64;
  model.tied_embeddings = pick(0, 1) == 1;
  model.qkv_bias = pick(0, 1) == 1;
  model.qk_norm = pick(0, 1) == 1;
  config.seq_len = pick(2, 7);
  config.micro_batch = pick(1, 2);
  config.microbatches = pick(1, 2);
  config.logits_chunk = pick(1, 6);  // of 2 to 14 tokens
  config.recompute.kind = static_cast<Recompute>(pick(0, 2));
  config.strategy = static_cast<Strategy>(pick(0, 3));
  const std::int64_t replicas = pick(0, 2) == 2 ? 2 : 1;
  config.mesh = data_parallel_mesh(replicas, pick(1, 3));
  if (config.strategy == Strategy::optim_grads_params && pick(0, 1) == 1)
    config.outer_strategy = Strategy::optim;
  config.allocator = static_cast<AllocatorPolicy>(pick(0, 3));
  const std::array<const char*, 4> frozen{"layers.0.", "embed_tokens", "layernorm", "qkv"};
  if (const std::int32_t which = pick(0, 11); which < 4)
    config.frozen = {frozen[static_cast<std::size_t>(which)]};
  return config;
}

std::string describe(const PlanConfig& config) {
  return fmt::format(
      "{} on {} x {} ranks, recompute {}, tied {}, bias {}, q/k norm {}, {} of {} heads",
      to_string(config.strategy), config.mesh.size(Axis::dp_outer),
      config.mesh.size(Axis::dp_shard), to_string(config.recompute.kind),
      config.model.tied_embeddings, config.model.qkv_bias, config.model.qk_norm,
      config.model.kv_heads, config.model.heads);
}

constexpr std::uint32_t kConfigs = 64;

/// How many of the configurations above are so.
template <class Is>
std::int64_t count(const Is& is) {
  std::int64_t number = 0;
  for (std::uint32_t seed = 0; seed < kConfigs; ++seed) number += is(random_config(seed)) ? 1 : 0;
  return number;
}

TEST(GradientConfigs, ReachEveryAxis) {
  const auto at_least = [](const char* what, std::int64_t number, const auto& is) {
    EXPECT_GE(count(is), number) << what;
  };
  using Config = const PlanConfig&;
  at_least("grouped queries", 10, [](Config c) { return c.model.kv_heads < c.model.heads; });
  at_least("several groups of queries", 4,
           [](Config c) { return c.model.kv_heads == 2 && c.model.kv_heads < c.model.heads; });
  at_least("tied head", 20, [](Config c) { return c.model.tied_embeddings; });
  at_least("biases", 20, [](Config c) { return c.model.qkv_bias; });
  at_least("q/k norm", 20, [](Config c) { return c.model.qk_norm; });
  at_least("uneven chunk", 20, [](Config c) {
    return c.tokens_per_microbatch() > c.logits_chunk &&
           c.tokens_per_microbatch() % c.logits_chunk != 0;
  });
  for (const char* frozen : {"layers.0.", "embed_tokens", "layernorm", "qkv"})
    at_least(frozen, 2, [&](Config c) { return c.frozen == std::vector<std::string>{frozen}; });
  for (const Recompute kind : {Recompute::none, Recompute::selective, Recompute::full})
    at_least("recompute", 10, [&](Config c) { return c.recompute.kind == kind; });
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params})
    at_least("strategy", 8,
             [&](Config c) { return c.strategy == strategy && c.mesh.size(Axis::dp_shard) > 1; });
  at_least("HSDP", 2, [](Config c) {
    return c.strategy == Strategy::optim_grads_params && c.mesh.size(Axis::dp_outer) > 1 &&
           c.outer_strategy == Strategy::no_shard;
  });
  at_least("HFSDP", 2, [](Config c) {
    return c.mesh.size(Axis::dp_outer) > 1 && c.outer_strategy == Strategy::optim;
  });
}

/// Fewer weights, on one rank, with what attention, RoPE, norms and MLP may have beside Llama's.
PlanConfig attention_config(std::uint32_t seed) {
  PlanConfig config = random_config(seed);
  test::RandomValues random(seed + 1000);
  const auto one_in = [&](std::int32_t cases) { return random.below(cases) == 0; };
  ModelShape& model = config.model;
  model.layers = 2;
  config.frozen.clear();
  config.mesh = data_parallel_mesh(1, 1);
  config.outer_strategy = Strategy::no_shard;
  config.micro_batch = config.microbatches = 1;
  config.seq_len = 5;
  model.hidden = 3;
  model.intermediate = 1;
  model.vocab = 4;
  model.kv_heads = 1;
  model.heads = 2;
  model.head_dim = 4;
  model.sliding_window = 1 + random.below(4);
  model.sliding_layers = one_in(2)   ? std::vector<std::int64_t>{0, 1}
                         : one_in(2) ? std::vector<std::int64_t>{0}
                                     : std::vector<std::int64_t>{1};
  if (one_in(2)) model.local_rope_theta = {100, 1};
  if (model.local_rope_theta.num == 0 && model.layers > 1) model.nope_layers = {0};
  if (one_in(2)) model.rotary_dim = 2;
  if (one_in(2)) model.query_scalar = {5, 2};
  if (one_in(2)) model.score_cap = {3, 2};
  if (one_in(2)) model.logit_cap = {5, 2};
  if (one_in(2)) model.activation = Activation::gelu_tanh;
  model.output_norms = one_in(2);
  model.zero_centered_norms = one_in(2);
  model.scaled_embedding = one_in(2);
  if (one_in(2))
    model.rope_scaling = {.kind = RopeKind::yarn,
                          .factor = {4, 1},
                          .low_freq_factor = {1, 1},
                          .high_freq_factor = {32, 1},
                          .original_max_seq_len = 8};
  config.document_mask = one_in(2);
  return config;
}

class AttentionGradients : public testing::TestWithParam<std::uint32_t> {};

TEST_P(AttentionGradients, EqualFiniteDifferences) {
  PlanConfig config = attention_config(GetParam());
  if (ModelShape& model = config.model; !model.output_norms) {
    model.residual_multiplier = {3, 2};
    model.logit_multiplier = {2, 3};
    if (!model.scaled_embedding) model.embedding_multiplier = {5, 2};
  }
  SCOPED_TRACE(describe(config));
  check_gradients(config, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Random, AttentionGradients,
                         testing::Range(0U, std::uint32_t{test::cases(12)}));

/// The same with adapters beside some layers, which alone train.
PlanConfig adapter_config(std::uint32_t seed) {
  PlanConfig config = attention_config(seed);
  test::RandomValues random(seed + 2000);
  const auto one_in = [&](std::int32_t cases) { return random.below(cases) == 0; };
  config.mesh = data_parallel_mesh(1, 1 + random.below(2));
  config.microbatches = 1 + random.below(2);
  config.model.fused_weights = one_in(4);
  config.lora_rank = 1 + random.below(2);
  config.lora_alpha = {3, 1};
  for (const LoraTarget& target : lora_targets(config.model))
    if (!one_in(3)) config.lora_targets.emplace_back(target.name);
  if (config.lora_targets.empty()) config.lora_targets = default_lora_targets(config.model);
  if (one_in(4)) config.frozen = {"lora_A"};
  return config;
}

class AdapterGradients : public testing::TestWithParam<std::uint32_t> {};

TEST_P(AdapterGradients, EqualFiniteDifferences) {
  const PlanConfig config = adapter_config(GetParam());
  SCOPED_TRACE(describe(config));
  check_gradients(config, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Random, AdapterGradients,
                         testing::Range(0U, std::uint32_t{test::cases(12)}));
/// The same of the other families in turn: their norms, biases, positions and activations.
class FamilyGradients : public testing::TestWithParam<std::uint32_t> {};

TEST_P(FamilyGradients, EqualFiniteDifferences) {
  PlanConfig config = attention_config(GetParam());
  config.model.qk_norm = true;
  config.model.kv_heads = 1 + GetParam() / 2 % 2;
  config.micro_batch = 2;  // a position of two sequences
  config.seq_len = 4;
  test::make_family(config.model, GetParam() % 2 == 0 ? Family::gpt2 : Family::olmo2);
  config.model.max_seq_len = 6;  // positions that no token has
  SCOPED_TRACE(describe(config));
  check_gradients(config, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Random, FamilyGradients,
                         testing::Range(0U, std::uint32_t{test::cases(8)}));

/// Experts in all blocks or after a dense one. Finite differences change no token's experts: steps
/// are small beside differences of logits. The eval plan has no losses of the routers.
class ExpertGradients : public testing::TestWithParam<std::uint32_t> {};

TEST_P(ExpertGradients, EqualFiniteDifferences) {
  const std::uint32_t seed = GetParam();
  PlanConfig config = random_config(seed);
  ModelShape& model = config.model;
  config.frozen.clear();
  model.qk_norm = seed % 2 == 0;
  model.hidden = 3;
  model.vocab = 4;
  config.micro_batch = 1;
  if (seed % 4 != 3)
    test::add_experts(model, 2 + seed % 3, 1 + seed % 2,
                      model.layers == 2 && seed % 3 == 0 ? std::vector<std::int64_t>{0}
                                                         : std::vector<std::int64_t>{});
  else
    test::make_family(model, seed % 8 == 3 ? Family::mixtral : Family::olmoe);
  // Few are beyond it; where the activation bends, differences are none.
  if (seed >= 10 && seed < 14) {
    test::make_family(model, Family::gpt_oss);
    model.swiglu_limit = {3, 2};
  }
  if (seed >= 14 && seed < 20) {
    if (seed % 4 != 3) test::add_experts(model, 4, 2);
    test::make_family(model, Family::deepseek);
    if (seed % 2 == 0) model.query_latent = 0;
    if (seed % 3 > 0) model.shared_intermediate = 2;
    if (seed % 4 < 2) model.routed_scale = {5, 2};
    model.sigmoid_routing = seed % 4 > 0;
    if (seed % 4 == 3) {
      model.experts = 6;
      model.router_groups = 3;
      model.chosen_groups = 2;
    }
  }
  if (seed >= 20) {
    model.router_aux_loss = model.router_z_loss = {0, 1};
    model.routed_scale = {0, 1};
    test::make_family(model, seed == 20 ? Family::minimax_m2 : Family::glm4_moe);
    model.head_dim = 4;
    model.rotary_dim = 2;
  }
  model.expert_intermediate = 3;
  if (seed < 10 && seed % 4 != 3 && seed % 3 > 0) model.shared_intermediate = 2;
  model.normalised_routing = seed % 5 < 3;
  // Adapters beside attention, through experts that are frozen.
  const std::vector<LoraTarget> beside = lora_targets(model);
  if (seed % 3 == 1 && !beside.empty()) {
    config.lora_rank = 2;
    config.lora_alpha = {3, 1};
    for (const LoraTarget& target : beside) config.lora_targets.emplace_back(target.name);
  }
  SCOPED_TRACE(describe(config));
  check_gradients(config, seed);
}
INSTANTIATE_TEST_SUITE_P(Random, ExpertGradients,
                         testing::Range(0U, std::uint32_t{test::cases(22)}));

class Gradients : public testing::TestWithParam<std::uint32_t> {};

TEST_P(Gradients, EqualFiniteDifferences) {
  const PlanConfig config = random_config(GetParam());
  SCOPED_TRACE(describe(config));
  check_gradients(config, GetParam());
}
INSTANTIATE_TEST_SUITE_P(Random, Gradients,
                         testing::Range(0U, std::uint32_t{test::cases(kConfigs)}));

}  // namespace
}  // namespace mfsdp
