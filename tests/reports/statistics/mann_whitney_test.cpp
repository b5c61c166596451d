// The rank test against counts by hand, tables and a search through every order.
#include "reports/statistics/mann_whitney.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace mfsdp {
namespace {

using Values = std::vector<double>;

TEST(MannWhitney, CountsPairs) {
  // Pairs (1,2) (1,4) (3,4) rise, (3,2) falls: u = 3 of 4, delta = 2 * 3 / 4 - 1.
  const RankTest test = mann_whitney(Values{1, 3}, Values{2, 4});
  EXPECT_EQ(test.u, 3);
  EXPECT_DOUBLE_EQ(test.effect, 0.5);
  EXPECT_TRUE(test.exact);
  // Of 6 orders u is 0, 1, 2, 2, 3, 4: two have 3 or more, five have 3 or less.
  EXPECT_DOUBLE_EQ(test.p_larger, 2.0 / 6);
  EXPECT_DOUBLE_EQ(test.p_smaller, 5.0 / 6);
}

TEST(MannWhitney, FiveASideCanReachOneIn252) {
  const RankTest test = mann_whitney(Values{1, 2, 3, 4, 5}, Values{6, 7, 8, 9, 10});
  EXPECT_EQ(test.u, 25);
  EXPECT_NEAR(test.p_larger, 1.0 / 252, 1e-15);  // one order of 10 choose 5
  EXPECT_DOUBLE_EQ(test.p_smaller, 1);
  EXPECT_EQ(test.effect, 1);
}

TEST(MannWhitney, ExactIsTheShareOfAllOrders) {
  // Every choice of 4 ranks out of 9, counted one by one.
  const Values first{2, 5, 6, 9};
  const Values second{1, 3, 4, 7, 8};
  const RankTest test = mann_whitney(first, second);
  int larger = 0;
  int smaller = 0;
  int all = 0;
  for (unsigned choice = 0; choice < 512; ++choice) {
    if (std::popcount(choice) != 4) continue;
    int u = 0;
    for (unsigned a = 0; a < 9; ++a)
      for (unsigned b = 0; b < 9; ++b)
        u += ((choice >> a) & 1U) == 1 && ((choice >> b) & 1U) == 0 && b > a;
    ++all;
    larger += u >= test.u;
    smaller += u <= test.u;
  }
  EXPECT_EQ(all, 126);
  EXPECT_NEAR(test.p_larger, static_cast<double>(larger) / all, 1e-14);
  EXPECT_NEAR(test.p_smaller, static_cast<double>(smaller) / all, 1e-14);
}

/// P(U <= u) of n and m values that all differ: the largest one is of the first list, below which
/// m of the second are, or of the second.
double share_up_to(std::size_t n, std::size_t m, std::size_t u) {
  std::vector<std::vector<double>> ways(m + 1, {1.0});  // of 0 values and j: one way, u = 0
  for (std::size_t i = 1; i <= n; ++i)
    for (std::size_t j = 0; j <= m; ++j) {
      std::vector<double> sum(i * j + 1, 0);
      for (std::size_t k = 0; k < ways[j].size(); ++k) sum[k + j] += ways[j][k];
      if (j > 0)
        for (std::size_t k = 0; k < ways[j - 1].size(); ++k) sum[k] += ways[j - 1][k];
      ways[j] = sum;
    }
  const auto begin = ways[m].begin();
  const double all = std::accumulate(begin, ways[m].end(), 0.0);
  return std::accumulate(begin, begin + static_cast<std::ptrdiff_t>(u) + 1, 0.0) / all;
}

TEST(MannWhitney, ExactIsTheRecurrencesShareEvenInTheTail) {
  // 20 values among 200, the lower ones moved up from case to case: u falls to 0.
  Values second(200);
  std::iota(second.begin(), second.end(), 0.0);
  for (const std::size_t least : {0U, 60U, 110U, 180U, 200U}) {
    Values first;
    for (std::size_t i = 0; i < 20; ++i)
      first.push_back(static_cast<double>(std::max(least, 10 * i)) - 0.5 +
                      0.01 * static_cast<double>(i));
    const RankTest test = mann_whitney(first, second);
    ASSERT_TRUE(test.exact);
    const double expected = share_up_to(20, 200, static_cast<std::size_t>(test.u));
    EXPECT_NEAR(test.p_smaller / expected, 1, 1e-12) << "u " << test.u;
  }
}

TEST(MannWhitney, EqualValuesAreDealtOutToo) {
  // Pairs (1,1) .5, (1,2) 1, (1,3) 1, (2,1) 0, (2,2) .5, (2,3) 1: u = 4.
  const RankTest test = mann_whitney(Values{1, 2}, Values{1, 2, 3});
  EXPECT_TRUE(test.exact);
  EXPECT_EQ(test.u, 4);
  // Of 1 1 2 2 3 two go to the first list: 11 (u 6), 12 four times (4), 13 twice (2.5), 22 (2),
  // 23 twice (0.5). Five of ten have 4 or more, nine have 4 or less.
  EXPECT_NEAR(test.p_larger, 0.5, 1e-15);
  EXPECT_NEAR(test.p_smaller, 0.9, 1e-15);
  const RankTest turned = mann_whitney(Values{1, 2, 3}, Values{1, 2});
  EXPECT_NEAR(turned.p_smaller, 0.5, 1e-15);
  EXPECT_NEAR(turned.p_larger, 0.9, 1e-15);
  // Six a side, apart, of two values each: still one way of 924.
  const RankTest apart = mann_whitney(Values{1, 1, 1, 2, 2, 2}, Values{3, 3, 3, 4, 4, 4});
  EXPECT_NEAR(apart.p_larger, 1.0 / 924, 1e-15);
  const RankTest equal = mann_whitney(Values{7, 7, 7}, Values{7, 7});
  EXPECT_EQ(equal.p_larger, 1);
  EXPECT_EQ(equal.p_smaller, 1);
  EXPECT_EQ(equal.effect, 0);
}

TEST(MannWhitney, ManyEqualValuesTakeTheNormalApproximation) {
  Values first;
  Values second;
  for (int i = 0; i < 21; ++i) {
    first.push_back(i % 2);
    second.push_back(i % 3 == 0 ? 0 : 1);
  }
  const RankTest test = mann_whitney(first, second);
  EXPECT_FALSE(test.exact);
  // 11 and 10 of the first are 0 and 1, 7 and 14 of the second: u = 11 * 14 + (11 * 7 + 10 * 14)/2.
  EXPECT_EQ(test.u, 262.5);
  // 18 zeros, 24 ones: variance = 441 / 12 * (43 - (5814 + 13800) / (42 * 41)).
  const double deviation = std::sqrt(441.0 / 12 * (43 - 19614.0 / 1722));
  const double z = (262.5 - 220.5 - 0.5) / deviation;
  EXPECT_NEAR(test.p_larger, 0.5 * std::erfc(z / std::sqrt(2.0)), 1e-15);
}

TEST(MannWhitney, TheApproximationIsCloseToTheExactOne) {
  // 21 a side have no exact distribution here; 20 a side do. Both of one pattern.
  for (const std::size_t count : {20U, 21U}) {
    Values first;
    Values second;
    for (std::size_t i = 0; i < count; ++i) {
      first.push_back(static_cast<double>(3 * i));
      second.push_back(static_cast<double>(3 * i) + 10.5);
    }
    const RankTest test = mann_whitney(first, second);
    EXPECT_EQ(test.exact, count <= 20);
    EXPECT_NEAR(test.p_larger, 0.046, 0.008) << count;
  }
}

TEST(ShiftBetween, IsTheMedianDifferenceWithItsRange) {
  // Differences of 3 x 2: 10 9 8, 21 20 19: median (10 + 19) / 2.
  const Shift small = shift_between(Values{0, 1, 2}, Values{10, 21}, 0.05);
  EXPECT_DOUBLE_EQ(small.estimate, 14.5);
  EXPECT_FALSE(small.bounded);  // one order of ten is the most extreme: 0.1
  EXPECT_EQ(small.low, 8);
  EXPECT_EQ(small.high, 21);
  // Five a side: P(u <= 4) = 12 / 252 < 0.05 < P(u <= 5) = 19 / 252, so five differences are
  // beyond each end, the fifth of them being the end. Differences are 5 + (j - i), i, j = 0 to 4:
  // one of -4, two of -3, three of -2: the fifth is 3.
  const Shift five = shift_between(Values{0, 1, 2, 3, 4}, Values{5, 6, 7, 8, 9}, 0.05);
  EXPECT_TRUE(five.bounded);
  EXPECT_EQ(five.estimate, 5);
  EXPECT_EQ(five.low, 3);
  EXPECT_EQ(five.high, 7);
}

}  // namespace
}  // namespace mfsdp
