#include "gpu_backend/train/learning_rate.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace mfsdp {
namespace {

TEST(LearningRate, RisesInALineAndFallsAsACosine) {
  const LearningRate rate{.peak = 1, .minimum = 0.1, .warmup = 4};
  // Warm-up: 1/4, 2/4, 3/4, 4/4.
  for (std::int64_t step = 0; step < 4; ++step)
    EXPECT_DOUBLE_EQ(learning_rate_at(rate, step, 13), static_cast<double>(step + 1) / 4);
  // Then from step 4, at the peak, to step 12, at the minimum: half-way, in step 8, the mean;
  // a quarter on, in step 6, 0.1 + 0.9 * (1 + cos(pi / 4)) / 2 = 0.868198...
  EXPECT_DOUBLE_EQ(learning_rate_at(rate, 4, 13), 1);
  EXPECT_NEAR(learning_rate_at(rate, 6, 13), 0.86819805153394639, 1e-15);
  EXPECT_NEAR(learning_rate_at(rate, 8, 13), 0.55, 1e-15);
  EXPECT_EQ(learning_rate_at(rate, 12, 13), 0.1);
  EXPECT_EQ(learning_rate_at(rate, 20, 13), 0.1);
}

TEST(LearningRate, ShortRunsNeverLeaveTheWarmUp) {
  const LearningRate rate{.peak = 1, .minimum = 0, .warmup = 10};
  EXPECT_DOUBLE_EQ(learning_rate_at(rate, 4, 5), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_at(rate, 9, 10), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at({.peak = 1, .minimum = 0, .warmup = 0}, 0, 1), 1);
}

TEST(LearningRate, FallsInALineOrStaysAtThePeak) {
  const LearningRate linear{
      .peak = 1, .minimum = 0.2, .warmup = 2, .schedule = RateSchedule::linear};
  EXPECT_DOUBLE_EQ(learning_rate_at(linear, 0, 11), 0.5);
  EXPECT_DOUBLE_EQ(learning_rate_at(linear, 2, 11), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(linear, 6, 11), 0.6);  // 4 of 8 intervals
  EXPECT_DOUBLE_EQ(learning_rate_at(linear, 8, 11), 0.4);  // 6 of 8: 1 - 0.8 * 3/4
  EXPECT_EQ(learning_rate_at(linear, 10, 11), 0.2);
  const LearningRate constant{.peak = 1, .warmup = 2, .schedule = RateSchedule::constant};
  EXPECT_DOUBLE_EQ(learning_rate_at(constant, 0, 5), 0.5);
  for (const std::int64_t step : {1, 2, 4, 9}) EXPECT_EQ(learning_rate_at(constant, step, 5), 1);
}

TEST(LearningRate, IsStableAndThenDecays) {
  LearningRate wsd{
      .peak = 1, .minimum = 0.2, .warmup = 3, .schedule = RateSchedule::wsd, .decay = 4};
  // Of 12 steps the last four fall: 11 - 4 = 7 is the last at the peak, then 4 intervals.
  for (std::int64_t step = 2; step <= 7; ++step) EXPECT_EQ(learning_rate_at(wsd, step, 12), 1);
  EXPECT_DOUBLE_EQ(learning_rate_at(wsd, 8, 12), 0.8);
  EXPECT_DOUBLE_EQ(learning_rate_at(wsd, 9, 12), 0.6);
  EXPECT_EQ(learning_rate_at(wsd, 11, 12), 0.2);
  wsd.decay = 0;
  EXPECT_EQ(learning_rate_at(wsd, 11, 12), 1);
  wsd.decay = 100;  // not before the warm-up ends: 8 intervals from step 3 on
  EXPECT_DOUBLE_EQ(learning_rate_at(wsd, 4, 12), 0.9);
}

RC_GTEST_PROP(LearningRateProperty, UpToThePeakThenDownToTheMinimum, ()) {
  const auto steps = *rc::gen::inRange<std::int64_t>(2, 300);
  const LearningRate rate{
      .peak = 1e-3 * *rc::gen::inRange(1, 100),
      .minimum = 1e-6 * *rc::gen::inRange(0, 1000),
      .warmup = *rc::gen::inRange<std::int64_t>(0, 400),
      .schedule = *rc::gen::element(RateSchedule::cosine, RateSchedule::linear, RateSchedule::wsd),
      .decay = *rc::gen::inRange<std::int64_t>(1, 300)};
  double last = 0;
  for (std::int64_t step = 0; step < steps; ++step) {
    const double now = learning_rate_at(rate, step, steps);
    RC_ASSERT(now > 0 || rate.minimum == 0);
    RC_ASSERT(now <= rate.peak * (1 + 1e-12));
    if (step < rate.warmup) {
      RC_ASSERT(now > last);
    } else {
      RC_ASSERT(now >= rate.minimum);
      if (step > rate.warmup) RC_ASSERT(now <= last);
    }
    last = now;
  }
  if (rate.warmup < steps - 1) RC_ASSERT(last == rate.minimum);
}

}  // namespace
}  // namespace mfsdp
