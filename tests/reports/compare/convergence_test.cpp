#include "reports/compare/convergence.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/gpu_steps.hpp"
#include "tests/support/sample_run.hpp"

namespace mfsdp {
namespace {

/// A falling loss with noise; from `at` on it is higher by `more` a step.
Curve noisy_curve(std::uint64_t seed, std::size_t at, double more) {
  test::Draw draw(seed);
  Curve curve;
  for (std::size_t i = 0; i < 300; ++i) {
    const double drift = i < at ? 0 : more * static_cast<double>(i - at);
    curve.at.push_back(static_cast<double>(i + 1));
    curve.values.push_back(3 + 7 * std::exp(-static_cast<double>(i) / 60) + drift +
                           0.1 * (draw.share() - 0.5));
  }
  return curve;
}

TEST(Convergence, MostMeanAndPlaces) {
  const Curve first{.at = {1, 2, 3, 4}, .values = {5, 4, 3, 2}};
  const Curve second{.at = {2, 3, 5}, .values = {4.5, 2, 9}};
  const CurveDifference d = difference_of(first, second);
  EXPECT_EQ(d.places, 3U);  // 2, 3, and 4 between 3 and 5: (2 + 9) / 2 = 5.5
  EXPECT_EQ(d.most, 3.5);
  EXPECT_EQ(d.most_at, 4);
  EXPECT_DOUBLE_EQ(d.mean, (0.5 - 1 + 3.5) / 3);
  EXPECT_FALSE(d.band);  // three places are too few
  EXPECT_FALSE(d.diverges_at);
  EXPECT_EQ(difference_of(first, {}).places, 0U);
}

TEST(Convergence, NoiseAloneDoesNotDiverge) {
  int diverged = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    const CurveDifference d =
        difference_of(noisy_curve(seed, 300, 0), noisy_curve(1000 + seed, 300, 0));
    ASSERT_TRUE(d.band);
    diverged += d.diverges_at.has_value();
  }
  EXPECT_LE(diverged, 4);  // of 200
}

TEST(Convergence, ASlowDriftIsFoundSoonAfterItBegins) {
  const CurveDifference d = difference_of(noisy_curve(1, 300, 0), noisy_curve(2, 150, 0.002));
  ASSERT_TRUE(d.diverges_at);
  EXPECT_GE(*d.diverges_at, 145);
  EXPECT_LE(*d.diverges_at, 200);
  // The drift does not widen the band: it is the noise of single differences, +-0.1 triangular with
  // a deviation of 0.1 / sqrt(6) = 0.041: 3 * 0.041 / sqrt(10) = 0.039.
  EXPECT_NEAR(*d.band, 0.039, 0.01);
}

TEST(Convergence, EqualRunsThatPartDivergeWhereTheyPart) {
  Curve first = noisy_curve(1, 300, 0);
  Curve second = first;
  for (std::size_t i = 200; i < 300; ++i) second.values[i] += 0.01;
  const CurveDifference d = difference_of(first, second);
  ASSERT_TRUE(d.diverges_at);
  EXPECT_EQ(*d.band, 0);
  EXPECT_EQ(*d.diverges_at, 192);  // the window of ten that holds step 201 first
  EXPECT_FALSE(difference_of(first, first).diverges_at);
}

TEST(Convergence, ASpikeIsNone) {
  Curve first = noisy_curve(1, 300, 0);
  Curve second = first;
  for (std::size_t i = 200; i < 204; ++i) second.values[i] += 5;
  EXPECT_FALSE(difference_of(first, second).diverges_at);
  second.values[204] += 5;
  second.values[205] += 5;
  EXPECT_TRUE(difference_of(first, second).diverges_at);  // more than half of a window
}

TEST(Convergence, SumsInAnotherOrderDoNotDiverge) {
  const Curve first = noisy_curve(1, 300, 0);
  Curve second = first;
  for (std::size_t i = 0; i < 300; i += 2) second.values[i] *= 1 + 1e-7;
  for (std::size_t i = 100; i < 300; ++i) second.values[i] *= 1 + 1e-7;
  const CurveDifference d = difference_of(first, second);
  EXPECT_GT(d.most, 0);
  EXPECT_FALSE(d.diverges_at);
}

/// A loss that is no number is stored as none.
TEST(Convergence, WhatIsFiniteNoMoreDiverges) {
  MeasuredRun run = test::measured_run();
  for (std::int64_t i = 1; i <= 40; ++i)
    run.steps.push_back(test::sample_step(i, Nanos(1), 10.0 - static_cast<double>(i) / 10));
  const auto curve = [&] { return curve_of(RunResult(run), CurveOf::loss, CurveBy::steps); };
  const Curve whole = curve();
  EXPECT_FALSE(whole.lost_at);
  for (std::size_t i = 30; i < 40; ++i) run.steps[i].loss = std::nan("");
  const Curve lost = curve();
  EXPECT_EQ(lost.lost_at, 31);
  EXPECT_EQ(difference_of(whole, lost).diverges_at, 31);
  EXPECT_EQ(difference_of(lost, whole).diverges_at, 31);
  EXPECT_FALSE(difference_of(lost, lost).diverges_at);
  run.steps.resize(35);
  EXPECT_EQ(difference_of(whole, curve()).diverges_at, 31);
  // A loss of every tenth step is one that others lack, and a step that was skipped has none.
  run.steps.resize(30);
  for (std::size_t i = 0; i < 30; ++i)
    if (i % 10 != 0) run.steps[i].loss.reset();
  EXPECT_FALSE(curve().lost_at);
  run.steps.resize(21);
  for (std::int64_t i = 22; i <= 40; ++i) {
    run.steps.push_back(test::sample_step(i, Nanos(1), 1));
    run.steps.back().loss.reset();
    run.steps.back().skipped = true;
  }
  EXPECT_FALSE(curve().lost_at);
}

TEST(CurveOf, StepsAndTokens) {
  MeasuredRun run = test::measured_run();
  for (std::int64_t i = 1; i <= 3; ++i) {
    run.steps.push_back(test::sample_step(i, Nanos(1), 10.0 - static_cast<double>(i)));
    run.steps.back().tokens = 100 * i;
  }
  run.steps[1].loss.reset();
  const Curve by_step = curve_of(RunResult(run), CurveOf::loss, CurveBy::steps);
  EXPECT_EQ(by_step.at, (std::vector<double>{1, 3}));
  EXPECT_EQ(by_step.values, (std::vector<double>{9, 7}));
  const Curve by_tokens = curve_of(RunResult(run), CurveOf::loss, CurveBy::tokens);
  EXPECT_EQ(by_tokens.at, (std::vector<double>{100, 600}));  // 100 + 200 + 300
  EXPECT_TRUE(curve_of(RunResult(run), CurveOf::grad_norm, CurveBy::steps).at.empty());
  EXPECT_TRUE(curve_of(RunResult(test::sample_run()), CurveOf::loss, CurveBy::steps).at.empty());
  run.resumed = ResumedFrom{.step = 10, .run_id = "before"};
  EXPECT_EQ(curve_of(RunResult(run), CurveOf::loss, CurveBy::tokens).at.front(), 1100);
  // The batch before was twice as large, with as many labelled tokens.
  const std::int64_t of_step = run.config.global_batch() * run.config.seq_len;
  run.facts.push_back(
      {.topic = "recipe", .name = std::string(kResumedTokens), .value = 20 * of_step});
  EXPECT_DOUBLE_EQ(curve_of(RunResult(run), CurveOf::loss, CurveBy::tokens).at.front(), 2100);
}

}  // namespace
}  // namespace mfsdp
