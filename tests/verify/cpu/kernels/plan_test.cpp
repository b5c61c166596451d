// All kernels together, as a plan composes them: training goes down, and what must not change a
// bit. (The gradients themselves: tests/verify/cpu/oracle.)
#include <gtest/gtest.h>

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
};

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
