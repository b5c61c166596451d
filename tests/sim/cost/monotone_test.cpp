#include "sim/cost/monotone.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>

#include "sim/cost/tables.hpp"

namespace mfsdp {
namespace {

using testing::DoubleEq;
using testing::ElementsAre;

TimeGrid ordered(TimeGrid times, const std::vector<double>& mebibytes) {
  std::vector<double> bytes;
  for (const double size : mebibytes) bytes.push_back(size * kMebibyte);
  make_monotone(times, bytes);
  return times;
}

TEST(MakeMonotone, LeavesWhatGrows) {
  EXPECT_EQ(ordered({{1, 2, 4}, {1, 3, 5}}, {1, 2, 4}), (TimeGrid{{1, 2, 4}, {1, 3, 5}}));
}

TEST(MakeMonotone, MeetsInTheMiddleOfWhatFalls) {
  // 8 before 2: both become sqrt(16), twice and half. With 3 between them sqrt(8 * 2) for it too.
  EXPECT_THAT(ordered({{8, 3, 2, 9}}, {1, 2, 4, 8})[0],
              ElementsAre(DoubleEq(4), DoubleEq(4), DoubleEq(4), DoubleEq(9)));
  // More ranks may not be faster: 8 on few, 2 on many.
  EXPECT_EQ(ordered({{8, 9}, {2, 9}}, {1, 2}), (TimeGrid{{4, 9}, {4, 9}}));
}

TEST(MakeMonotone, NoiseBelowAMebibyteMovesNothingElse) {
  // 50 for 64 KiB would pull 20 up to sqrt(1000) = 31.6; instead it comes down.
  EXPECT_EQ(ordered({{50, 20, 30}}, {0.0625, 1, 4}), (TimeGrid{{20, 20, 30}}));
  EXPECT_EQ(ordered({{8, 2}}, {0.25, 0.5}), (TimeGrid{{4, 4}}));  // nothing else is known
}

RC_GTEST_PROP(MakeMonotoneProperty, OrdersAndMovesByTheLeastFactor, ()) {
  const auto curves = *rc::gen::inRange<std::size_t>(1, 4);
  const auto sizes = *rc::gen::inRange<std::size_t>(1, 6);
  TimeGrid measured(curves, std::vector<double>(sizes));
  for (auto& curve : measured)
    for (double& time : curve) time = *rc::gen::inRange(1, 1000);
  std::vector<double> mebibytes;
  for (std::size_t s = 0; s < sizes; ++s) mebibytes.push_back(std::pow(2, s));
  const TimeGrid times = ordered(measured, mebibytes);
  double factor = 1;  // that some cell moved by
  double fall = 1;    // the largest ratio of two measured cells in the wrong order
  for (std::size_t c = 0; c < curves; ++c) {
    for (std::size_t s = 0; s < sizes; ++s) {
      factor = std::max({factor, times[c][s] / measured[c][s], measured[c][s] / times[c][s]});
      for (std::size_t d = c; d < curves; ++d) {
        for (std::size_t t = s; t < sizes; ++t) {
          RC_ASSERT(times[c][s] <= times[d][t] * (1 + 1e-12));
          fall = std::max(fall, measured[c][s] / measured[d][t]);
        }
      }
    }
  }
  // Cells a, b with a / b = fall can be in order only if one moves by sqrt(fall) or more.
  RC_ASSERT(factor <= std::sqrt(fall) * (1 + 1e-12));
}

}  // namespace
}  // namespace mfsdp
