#include "reports/statistics/change_points.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "reports/statistics/blocks.hpp"
#include "tests/support/gpu_steps.hpp"

namespace mfsdp {
namespace {

/// Values around `level` that deviate by up to `noise` of it.
void add(std::vector<double>& history, std::size_t count, double level, double noise,
         test::Draw& draw) {
  for (std::size_t i = 0; i < count; ++i)
    history.push_back(level * (1 + noise * (2 * draw.share() - 1)));
}

TEST(ChangePoints, FindsEachLevel) {
  test::Draw draw(7);
  std::vector<double> history;
  add(history, 30, 100, 0.01, draw);
  add(history, 12, 110, 0.01, draw);
  add(history, 25, 104, 0.01, draw);
  const auto points = change_points(history);
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].at, 30U);
  EXPECT_EQ(points[1].at, 42U);
  EXPECT_NEAR(points[0].before, 100, 1);
  EXPECT_NEAR(points[0].after, 110, 1);
  EXPECT_NEAR(points[1].after, 104, 1);
  EXPECT_LE(points[0].p, 0.01);
}

TEST(ChangePoints, FiveRunsAtTheEndAreEnough) {
  test::Draw draw(3);
  std::vector<double> history;
  add(history, 40, 100, 0.01, draw);
  add(history, 5, 105, 0.01, draw);
  const auto points = change_points(history);
  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(points[0].at, 40U);
}

TEST(ChangePoints, OfFiftyThousandRuns) {
  test::Draw draw(11);
  std::vector<double> history;
  add(history, 30'000, 100, 0.05, draw);
  add(history, 20'000, 102, 0.05, draw);
  const auto points = change_points(history);
  ASSERT_EQ(points.size(), 1U);
  EXPECT_NEAR(static_cast<double>(points[0].at), 30'000, 20);
}

TEST(ChangePoints, NoiseHasNone) {
  int found = 0;
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    test::Draw draw(seed);
    std::vector<double> history;
    add(history, 50, 100, 0.05, draw);
    found += !change_points(history).empty();
  }
  EXPECT_LE(found, 4);  // of 200: the correction promises at most 1 %, two expected
}

TEST(ChangePoints, SmallAndSparseChangesDoNotCount) {
  test::Draw draw(5);
  std::vector<double> history;
  add(history, 30, 100, 0.0001, draw);
  add(history, 30, 100.5, 0.0001, draw);  // half a percent
  EXPECT_TRUE(change_points(history).empty());
  EXPECT_EQ(change_points(history, {.least_change = 0.001}).size(), 1U);
  EXPECT_TRUE(change_points(std::vector<double>{1, 1, 1, 1, 9, 9, 9, 9}).empty());
  EXPECT_TRUE(change_points(std::vector<double>{}).empty());
}

TEST(ChangePoints, MeasuredStepsOfTwoPrograms) {
  // Blocks of program a, then of b, which has a block more.
  std::vector<double> history;
  for (const char* program : {"a", "b"})
    for (const auto& series : test::gpu_steps(program))
      for (const double mean : blocks_of(series).means) history.push_back(mean);
  const auto points = change_points(history, {.least_change = 0.02});
  ASSERT_EQ(points.size(), 1U);
  EXPECT_EQ(points[0].at, history.size() / 2);
}

TEST(ExactChanges, AreWhereverAValueDiffers) {
  const auto points = exact_changes(std::vector<double>{5, 5, 6, 6, 5});
  ASSERT_EQ(points.size(), 2U);
  EXPECT_EQ(points[0].at, 2U);
  EXPECT_EQ(points[0].before, 5);
  EXPECT_EQ(points[0].after, 6);
  EXPECT_EQ(points[1].at, 4U);
  EXPECT_TRUE(exact_changes(std::vector<double>{}).empty());
}

}  // namespace
}  // namespace mfsdp
