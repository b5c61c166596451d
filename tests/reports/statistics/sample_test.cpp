#include "reports/statistics/sample.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace mfsdp {
namespace {

using Values = std::vector<double>;

TEST(Sample, MeanAndMedian) {
  EXPECT_EQ(mean_of(Values{1, 2, 6}), 3);
  EXPECT_EQ(median_of(Values{6, 1, 2}), 2);
  EXPECT_EQ(median_of(Values{6, 1, 2, 4}), 3);
}

TEST(Sample, AutocorrelationIsOfNeighbours) {
  // Deviations 1 1 -1 -1: neighbours multiplied, 1 - 1 + 1, over squares 4.
  EXPECT_DOUBLE_EQ(autocorrelation_of(Values{2, 2, 0, 0}), 0.25);
  EXPECT_DOUBLE_EQ(autocorrelation_of(Values{2, 0, 2, 0}), -0.75);
  EXPECT_EQ(autocorrelation_of(Values{3, 3, 3}), 0);
  EXPECT_EQ(autocorrelation_of(Values{1, 2}), 0);
}

TEST(MedianRange, LeavesOutWhatTheBinomialAllows) {
  // (1/2)^5 = 0.031 fits into 0.05; with one left out (1 + 5) / 32 does not.
  const MedianRange five = median_range(Values{5, 1, 4, 2, 3}, 0.05);
  EXPECT_TRUE(five.known);
  EXPECT_EQ(five.low, 1);
  EXPECT_EQ(five.high, 5);
  // (1 + 10) / 1024 = 0.011, (1 + 10 + 45) / 1024 = 0.055: one is left out at each end.
  const MedianRange ten = median_range(Values{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, 0.05);
  EXPECT_EQ(ten.low, 2);
  EXPECT_EQ(ten.high, 9);
  EXPECT_FALSE(median_range(Values{1, 2, 3, 4}, 0.05).known);  // 1/16
  // Of many, what a normal distribution allows: 1.645 / 2 * sqrt(n) ranks from the middle.
  for (const int count : {1000, 1200, 10'000}) {
    Values many(static_cast<std::size_t>(count));
    std::iota(many.begin(), many.end(), 1);
    const MedianRange range = median_range(many, 0.05);
    EXPECT_NEAR(range.low, (count + 1) / 2.0 - 1.645 / 2 * std::sqrt(count), 1.5) << count;
    EXPECT_EQ(range.low + range.high, count + 1) << count;
  }
  EXPECT_FALSE(median_range(Values{}, 0.05).known);
}

}  // namespace
}  // namespace mfsdp
