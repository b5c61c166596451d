#include "reports/statistics/blocks.hpp"

#include <gtest/gtest.h>

#include <vector>

namespace mfsdp {
namespace {

TEST(Blocks, LeaveOutTheWarmUpAndTheRest) {
  std::vector<double> series(5 + 23, 1000);  // 5 of warm-up, two blocks, 3 that fill none
  for (std::size_t i = 5; i < series.size(); ++i) series[i] = static_cast<double>(i - 5);
  const Blocks blocks = blocks_of(series);
  EXPECT_EQ(blocks.means, (std::vector<double>{4.5, 14.5}));  // of 0 to 9 and 10 to 19
  EXPECT_EQ(blocks.steps, 10U);
  EXPECT_TRUE(blocks_of(std::vector<double>(5, 1.0)).means.empty());
  EXPECT_TRUE(blocks_of(std::vector<double>{}).means.empty());
}

TEST(Blocks, OfALongSeriesAreLonger) {
  const Blocks blocks = blocks_of(std::vector<double>(100'005, 1.0));
  EXPECT_EQ(blocks.steps, 500U);  // 100,000 steps in 200 blocks
  EXPECT_EQ(blocks.means.size(), 200U);
}

TEST(Blocks, GrowWhileOneResemblesTheNext) {
  // A slow swing: 200 steps up, 200 down. Blocks of ten resemble each other, so they grow until
  // ten blocks no longer do, or fewer than five would be left.
  std::vector<double> swing(5, 0);
  for (int i = 0; i < 400; ++i) swing.push_back(i < 200 ? i : 400 - i);
  const Blocks blocks = blocks_of(swing);
  EXPECT_GT(blocks.steps, 10U);
  EXPECT_GE(blocks.means.size(), 5U);
  std::vector<double> even(5, 0);
  for (int i = 0; i < 400; ++i) even.push_back(i % 20 < 10 ? 1 : 2);  // blocks 1 2 1 2
  EXPECT_EQ(blocks_of(even).steps, 10U);
  EXPECT_LT(blocks_of(even).autocorrelation, 0);
}

}  // namespace
}  // namespace mfsdp
