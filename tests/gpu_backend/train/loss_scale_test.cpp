// Training in fp16 with scaled losses, on the CPU's machine.
#include "core/plan/loss_scale.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/gpu_backend/train/training.hpp"

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

/// The step after which nothing is as it was before the run.
void expect_right(const Told& told) {
  ASSERT_TRUE(told.end) << told.end.error().message();
  EXPECT_TRUE(told.torn.empty());
  EXPECT_TRUE(told.allocated_as_planned);
}

TEST(LossScale, APowerOfTwoChangesNoBit) {
  const Told one = test::train(fp16(1 << 9, 0), 3, Counting());
  const Told other = test::train(fp16(1 << 10, 0), 3, Counting());
  expect_right(one);
  expect_right(other);
  EXPECT_EQ(one.losses(), other.losses());
  EXPECT_EQ(one.weights, other.weights);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(one.steps[i].grad_norm, other.steps[i].grad_norm);
    EXPECT_EQ(other.steps[i].loss_scale, 2 * one.steps[i].loss_scale);
  }
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
  EXPECT_LT(told.losses().back(), told.losses().front() - 1);
  // The first steps were all skipped: the loss stayed.
  for (std::size_t i = 1; i < 3; ++i) EXPECT_EQ(told.losses()[i], told.losses()[0]);
}

/// A fixed scale stays, and steps that overflow are left out: none of them is not.
TEST(LossScale, AFixedOneThatIsTooLargeTrainsNothing) {
  PlanConfig config = fp16(1 << 18, 0);
  config.clip = Rational{0, 1};  // the norm is read for the scale's sake
  const Told told = test::train(config, 3, Counting());
  expect_right(told);
  for (const StepReport& step : told.steps) EXPECT_TRUE(step.non_finite);
  EXPECT_EQ(told.losses()[2], told.losses()[0]);
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
  EXPECT_EQ(alone.weights, whole.weights);
}

}  // namespace
}  // namespace mfsdp
