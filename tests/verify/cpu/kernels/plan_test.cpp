// All kernels together, as a plan composes them: gradients of every parameter against finite
// differences of the plan's own loss, and what must not change a bit.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <functional>

#include "core/runtime/scalar.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"
#include "tests/verify/cpu/kernels/gradients.hpp"
#include "tests/verify/cpu/kernels/serial_run.hpp"

namespace mfsdp {
namespace {

using test::RandomValues;
using test::SerialRun;
using test::Values;

Program program_of(const PlanConfig& config) {
  auto program = build_program(config, {});
  EXPECT_TRUE(program) << program.error().message();
  return *program;
}

/// One rank and its data: seeded weights, and tokens of which some carry no loss.
struct Trainee {
  const Program& program;
  SerialRun run{program};
  std::uint32_t seed;

  Trainee(const Program& built, std::uint32_t data_seed) : program(built), seed(data_seed) {
    RandomValues random(seed);
    for (const Group& group : program.groups) {
      Values weights(static_cast<std::size_t>(group.elements), 0);
      for (const PlacedParameter& parameter : group.parameters) {
        // Vectors are norms' weights about 1, or biases, for which that does as well.
        const double size =
            parameter.decay ? 1 / std::sqrt(static_cast<double>(parameter.shape.back())) : 0.2;
        const Values values = random(parameter.elements(), size);
        for (std::size_t i = 0; i < values.size(); ++i)
          weights[static_cast<std::size_t>(parameter.offset) + i] =
              values[i] + (parameter.decay ? 0 : 1);
      }
      for (const char* name : {"model_weight", "main_weight"})
        if (const Buffer* buffer = run.find(buffer_name(group, name))) store(*buffer, weights);
    }
  }

  [[nodiscard]] std::string buffer_name(const Group& group, const std::string& name) const {
    return program.units[group.unit.value].name + (group.requires_grad ? "." : ".frozen.") + name;
  }

  void store(const Buffer& buffer, const Values& values) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto value = static_cast<float>(values[i]);
      if (buffer.dtype == DType::bf16)
        reinterpret_cast<Bf16*>(run.bytes(buffer))[i] = narrow<Bf16>(value);
      else
        reinterpret_cast<float*>(run.bytes(buffer))[i] = value;
    }
  }

  void fill_tokens(std::int32_t* tokens, std::int64_t microbatch) const {
    RandomValues random(seed + static_cast<std::uint32_t>(microbatch) * 1000);
    const std::int64_t count = program.config.tokens_per_microbatch();
    for (std::int64_t i = 0; i < 2 * count; ++i)
      tokens[i] = random.below(program.config.model.vocab);
    for (std::int64_t i = count + 2; i < 2 * count; i += 5) tokens[i] = -100;
  }

  void train(std::int64_t step) {
    run.run("train", step, [&](std::int32_t* to, std::int64_t at) { fill_tokens(to, at); });
  }

  /// The summed loss of a step's microbatches, by the eval plan.
  double loss() {
    double sum = 0;
    for (std::int64_t m = 0; m < program.config.microbatches; ++m) {
      run.run("eval", 0, [&](std::int32_t* to, std::int64_t) { fill_tokens(to, m); });
      sum += run.data<float>("loss_sums")[0];
    }
    return sum;
  }
};

PlanConfig one_rank_config() {
  PlanConfig config = *test::any_config();
  config.mesh = {};
  config.outer_strategy = Strategy::no_shard;
  config.param_dtype = config.main_dtype = config.grad_dtype = config.reduce_dtype = DType::fp32;
  config.model.hidden = *rc::gen::inRange(4, 13);
  config.model.vocab = *rc::gen::inRange(4, 41);
  config.seq_len = *rc::gen::inRange(3, 21);
  config.model.layers = *rc::gen::inRange(1, 3);
  config.recompute.full_blocks = 0;
  config.frozen = {};
  // Rows close to 0 would make a norm steep, and finite differences of fp32 wrong.
  config.model.rms_norm_eps = {1, 10};
  return config;
}

/// A direction in which every element counts, and mostly those with large gradients.
Values direction_of(const float* gradient, std::size_t count, RandomValues& random) {
  double squares = 1e-12;
  for (std::size_t i = 0; i < count; ++i) squares += gradient[i] * gradient[i];
  Values direction = random(static_cast<std::int64_t>(count));
  const Values weights = random(static_cast<std::int64_t>(count));
  for (std::size_t i = 0; i < count; ++i)
    direction[i] = 0.5 * direction[i] / std::sqrt(static_cast<double>(count)) +
                   std::fabs(weights[i]) * gradient[i] / std::sqrt(squares);
  return direction;
}

/// The derivative of loss(distance) at 0 by central differences of five points.
double slope(const std::function<double(double)>& loss, double step) {
  return (8 * (loss(step) - loss(-step)) - (loss(2 * step) - loss(-2 * step))) / (12 * step);
}

// The plan computes in fp32: a loss of about 100 has rounding errors of some 1e-5, which a step of
// 0.02 makes 1e-3 of a derivative of about 1. Where the loss bends too much for that step, a
// shorter one must agree: within what rounding leaves.
RC_GTEST_PROP(PlanOnOneRank, GradientOfEveryParameter, (std::uint32_t seed)) {
  const Program program = program_of(one_rank_config());
  Trainee trainee(program, seed % 1000);
  Trainee trained(program, seed % 1000);
  trained.train(0);
  RandomValues random(seed);
  for (const Group& group : program.groups) {
    auto* weights = trainee.run.data<float>(trainee.buffer_name(group, "model_weight"));
    const auto* gradients = trained.run.data<float>(trained.buffer_name(group, "main_grad"));
    for (const PlacedParameter& parameter : group.parameters) {
      const auto count = static_cast<std::size_t>(parameter.elements());
      float* weight = weights + parameter.offset;
      const std::vector<float> middle(weight, weight + count);
      const float* gradient = gradients + parameter.offset;
      const Values direction = direction_of(gradient, count, random);
      const double derivative = test::dot({gradient, gradient + count}, direction);
      const auto loss = [&](double distance) {
        for (std::size_t i = 0; i < count; ++i)
          weight[i] = static_cast<float>(middle[i] + distance * direction[i]);
        return trainee.loss();
      };
      double error = 0;
      for (const double step : {0.02, 0.01, 0.005, 0.0025}) {
        const double expected = slope(loss, step);
        error = std::fabs(derivative - expected) / (1 + std::fabs(expected));
        RC_LOG() << parameter.name << ": " << derivative << ", by differences of " << step << " "
                 << expected << "\n";
        if (error < 3e-3) break;
      }
      std::copy(middle.begin(), middle.end(), weight);
      RC_ASSERT(error < 3e-3);
    }
  }
}

/// Bytes of all weights after three steps, and the loss of each.
struct Trained {
  std::vector<std::byte> weights;
  std::vector<float> losses;
};

Trained train(PlanConfig config, std::uint32_t seed) {
  const Program program = program_of(config);
  Trainee trainee(program, seed);
  Trained trained;
  for (std::int64_t step = 0; step < 3; ++step) {
    trainee.train(step);
    const auto* report = trainee.run.data<float>("pinned_report");
    trained.losses.push_back(report[0]);
    EXPECT_GT(report[4], 0) << "norm";
    EXPECT_EQ(report[6], 0) << "non-finite";
  }
  for (const Buffer& buffer : program.buffers)
    if (buffer.category == Category::model_weight) {
      const std::byte* bytes = trainee.run.bytes(buffer);
      trained.weights.insert(trained.weights.end(), bytes, bytes + buffer.size.value);
    }
  return trained;
}

PlanConfig nano_config() {
  PlanConfig config = test::small_config(1, 2);
  config.model.hidden = 32;
  config.model.heads = 4;
  config.model.kv_heads = 2;
  config.model.head_dim = 8;
  config.model.intermediate = 96;
  config.model.tied_embeddings = true;
  config.model.qk_norm = true;
  config.model.qkv_bias = true;
  config.logits_chunk = 7;  // 7 + 7 + 2
  config.microbatches = 2;
  return config;
}

TEST(PlanOnOneRank, LossFallsIn16Bits) {
  for (const DType dtype : {DType::bf16, DType::fp32}) {
    PlanConfig config = nano_config();
    config.param_dtype = dtype;
    const Trained trained = train(config, 5);
    EXPECT_LT(trained.losses[1], trained.losses[0]);
    EXPECT_LT(trained.losses[2], trained.losses[1]);
  }
}

TEST(PlanOnOneRank, RecomputeAndAllocatorChangeNoBit) {
  PlanConfig config = nano_config();
  config.recompute.kind = Recompute::none;
  const Trained expected = train(config, 5);
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    for (const AllocatorPolicy allocator :
         {AllocatorPolicy::temporary, AllocatorPolicy::best_fit}) {
      config.recompute.kind = recompute;
      config.allocator = allocator;
      const Trained trained = train(config, 5);
      EXPECT_EQ(trained.losses, expected.losses);
      EXPECT_EQ(trained.weights, expected.weights);
    }
}

TEST(PlanOnOneRank, SgdAndNarrowGradientsTrainToo) {
  PlanConfig config = nano_config();
  config.optimizer = Optimizer::sgd;
  config.grad_dtype = DType::bf16;
  config.reduce_dtype = DType::fp16;
  config.main_dtype = DType::bf16;
  config.clip = {0, 1};
  config.frozen = {"layers.0."};
  EXPECT_EQ(train(config, 5).losses.size(), 3u);
}

}  // namespace
}  // namespace mfsdp
