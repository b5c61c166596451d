// Training in fp16 with scaled losses, on the CPU's machine.
#include "core/plan/loss_scale.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <vector>

#include "tests/gpu_backend/train/training.hpp"
#include "verify/cpu/kernels/cross_entropy.hpp"

namespace mfsdp {
namespace {

using test::Counting;
using test::nano;
using test::Told;

/// `scale`: of the sum of losses, as the device has it.
PlanConfig fp16(std::int64_t scale, std::int64_t window) {
  PlanConfig config = nano(2);
  config.param_dtype = DType::fp16;
  config.loss_scale = {.num = scale * loss_scale_tokens(config)};
  config.loss_scale_window = window;
  return config;
}

void expect_right(const Told& told) {
  ASSERT_TRUE(told.end) << told.end.error().message();
  EXPECT_TRUE(told.torn.empty());
  EXPECT_TRUE(told.allocated_as_planned);
}

TEST(LossScale, APowerOfTwoDoublesGradientsOfLogits) {
  const std::vector<std::int32_t> labels{3, 0};
  const std::vector<float> logits{0.5F, -1, 2, 0.25F, 1, 3, -0.5F, 0.125F};
  const auto gradient = [&](float scale) {
    std::vector<Fp16> values;
    for (const float logit : logits) values.push_back(narrow<Fp16>(logit));
    const auto sums = kernels::cross_entropy(std::span<const std::int32_t>(labels), 4, kIgnoreIndex,
                                             values.data(), 0.0F, scale);
    EXPECT_EQ(sums.tokens, 2);
    std::vector<float> wide;
    for (const Fp16 value : values) wide.push_back(widen(value));
    return wide;
  };
  const std::vector<float> one = gradient(1);
  const std::vector<float> other = gradient(1'024);
  for (std::size_t i = 0; i < one.size(); ++i) EXPECT_EQ(other[i], 1'024 * one[i]) << i;
}

/// fp16 counts in steps of 2^-24 below 2^-14: gradients of 2^11 less there are rounded otherwise,
/// and no others. Sums of the last step's come with their scale.
TEST(LossScale, APowerOfTwoChangesNoBitThatDoesNotUnderflow) {
  const Told one = test::train(fp16(1 << 10, 0), 2, Counting());
  const Told other = test::train(fp16(1 << 11, 0), 2, Counting());
  expect_right(one);
  expect_right(other);
  EXPECT_EQ(one.losses(), other.losses());
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(one.steps[i].grad_norm, other.steps[i].grad_norm, 1e-5 * one.steps[i].grad_norm);
    EXPECT_EQ(other.steps[i].loss_scale, 2 * one.steps[i].loss_scale);
  }
  std::size_t all = 0;
  std::size_t doubled = 0;
  for (const auto& [name, values] : one.gradients)
    for (std::size_t i = 0; i < values.size(); ++i, ++all)
      doubled += other.gradients.at(name)[i] == 2 * values[i] ? 1 : 0;
  EXPECT_GT(static_cast<double>(doubled), 0.8 * static_cast<double>(all));
}

/// Each step's scale follows from those before it, by the rules of GradScaler; steps that overflow
/// change nothing, and the others train.
TEST(LossScale, ADynamicOneFindsItsWay) {
  const std::int64_t window = 4;
  const PlanConfig config = fp16(1 << 18, window);
  Told told = test::train(config, 24, Counting());
  expect_right(told);
  LossScaleState state = first_loss_scale(config);
  std::size_t skipped = 0;
  std::size_t grown = 0;
  for (const StepReport& step : told.steps) {
    EXPECT_EQ(step.loss_scale, double{state.scale} * double(loss_scale_tokens(config)))
        << "step " << step.step;
    EXPECT_TRUE(std::isfinite(step.loss));
    EXPECT_EQ(step.non_finite, !std::isfinite(step.grad_norm));
    skipped += step.non_finite ? 1 : 0;
    const LossScaleState next = next_loss_scale(state, step.non_finite, window);
    grown += next.scale > state.scale ? 1 : 0;
    state = next;
  }
  // d(logits) of a label is -2^18 at first, and fp16 ends at 65504: at least 3 steps are too many.
  EXPECT_GE(skipped, 3U);
  EXPECT_GE(grown, 2U);
  EXPECT_LT(told.losses().back(), told.losses().front() - 0.5);
}

/// A fixed scale stays, and steps that overflow change nothing.
TEST(LossScale, AFixedOneThatIsTooLargeTrainsNothing) {
  PlanConfig config = fp16(1 << 18, 0);
  config.clip = Rational{0, 1};  // the norm is read for the scale's sake
  const Told told = test::train(config, 3, Counting());
  expect_right(told);
  for (const StepReport& step : told.steps) EXPECT_TRUE(step.non_finite);
  EXPECT_TRUE(told.weights == test::train(config, 1, Counting()).weights);
}

/// With exact sums every layout has the same bits, and so has every power of two.
TEST(LossScale, ExactSumsOfEveryLayout) {
  PlanConfig config = fp16(1 << 9, 0);
  config.exact_sums = true;
  const Told whole = test::train(config, 2, Counting());
  expect_right(whole);
  PlanConfig other = nano(1, Strategy::no_shard);
  other.microbatches = 2;
  other.param_dtype = DType::fp16;
  other.exact_sums = true;
  other.loss_scale = config.loss_scale;
  const Told alone = test::train(other, 2, Counting());
  expect_right(alone);
  EXPECT_TRUE(alone.weights == whole.weights);
}

}  // namespace
}  // namespace mfsdp
