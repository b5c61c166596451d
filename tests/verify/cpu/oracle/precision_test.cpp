// The precision that fp32 and bf16 lose against the same step in double, from the same weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>

#include "core/schedule/build.hpp"
#include "tests/verify/cpu/oracle/training_step.hpp"

namespace mfsdp {
namespace {

using test::Tensors;

PlanConfig config_in(DType dtype, bool qk_norm) {
  PlanConfig config;
  ModelShape& model = config.model;
  model.layers = 2;
  model.heads = 4;
  model.kv_heads = 2;
  model.head_dim = 16;
  model.hidden = 48;
  model.intermediate = 96;
  model.vocab = 64;
  model.max_seq_len = 64;
  model.qkv_bias = !qk_norm;
  model.qk_norm = qk_norm;
  config.mesh.resize(Axis::dp_shard, 2);
  config.seq_len = 32;
  config.microbatches = 2;
  config.logits_chunk = 20;
  config.param_dtype = dtype;
  if (dtype == DType::fp64)
    config.main_dtype = config.grad_dtype = config.reduce_dtype = DType::fp64;
  return config;
}

test::StepOutcome step_in(DType dtype, bool qk_norm, std::uint32_t seed) {
  const Program program = build_program(config_in(dtype, qk_norm), {}).value();
  Tensors weights = test::random_weights(program, seed);
  for (auto& [name, values] : weights)  // what every dtype holds exactly
    for (double& value : values) value = widen(narrow<Bf16>(static_cast<float>(value)));
  return test::TrainingStep(program, test::random_batches(program, seed)).run(weights);
}

struct Precision {
  DType dtype;
  double unit;  ///< of rounding: half of the distance from 1 to the next number
  bool qk_norm;
};

class PrecisionOf : public testing::TestWithParam<Precision> {};

// A block stores 11 tensors forward (x, normed, qkv, rotated, attention, its projection, mid,
// normed, gate and up, `product`, mlp_out) and 9 backward, the head 6: between a weight and its
// gradient lie at most 46 for two blocks. Each rounds once, and holds sums of at most 96 terms in
// fp32, whose roundings add like a random walk: sqrt(96) < 10 units of fp32. The softmax and the
// norms lengthen and shorten errors by factors about 1. All pulling one way would make
//   46 (unit + 10 * 2^-24):  fp32 3.0e-5, fp16 2.2e-2, bf16 9.0e-2
// of a gradient; as they do not, some 7 units are usual (sqrt(46)). Less than one would mean that
// the dtype is not the one that was asked for.
TEST_P(PrecisionOf, GradientsLoseWhatRoundingsMake) {
  const auto [dtype, unit, qk_norm] = GetParam();
  const double bound = 46 * (unit + 10 * 0x1p-24);
  for (std::uint32_t seed = 0; seed < 2; ++seed) {
    const test::StepOutcome expected = step_in(DType::fp64, qk_norm, seed);
    const test::StepOutcome step = step_in(dtype, qk_norm, seed);
    EXPECT_NEAR(step.loss, expected.loss, bound / 2 * expected.loss);  // forward alone
    double worst = 0;
    for (const auto& [name, gradient] : step.gradients) {
      const double error = test::relative_error(gradient, expected.gradients.at(name));
      EXPECT_LT(error, bound) << name;
      worst = std::max(worst, error);
    }
    EXPECT_GT(worst, unit);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, PrecisionOf,
    testing::Values(Precision{DType::fp32, 0x1p-24, false}, Precision{DType::fp32, 0x1p-24, true},
                    Precision{DType::fp16, 0x1p-11, false}, Precision{DType::fp16, 0x1p-11, true},
                    Precision{DType::bf16, 0x1p-9, false}, Precision{DType::bf16, 0x1p-9, true}),
    [](const auto& tested) {
      return std::string(to_string(tested.param.dtype)) + (tested.param.qk_norm ? "_qk_norm" : "");
    });

}  // namespace
}  // namespace mfsdp
