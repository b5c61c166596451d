#include "sim/cost/shape_table.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

namespace mfsdp {
namespace {

const std::vector<ShapePoint> kPoints{{.shape = {1, 1, 1}, .rate = 10},
                                      {.shape = {4, 1, 1}, .rate = 20}};

TEST(ShapeTable, WeighsByInverseSquaredDistance) {
  const ShapeTable table(kPoints, {1, 1, 1}, false);
  EXPECT_EQ(table.at({1, 1, 1}), 10);
  EXPECT_EQ(table.at({4, 1, 1}), 20);
  EXPECT_EQ(table.at({2, 1, 1}), 15);  // a factor of two from either: d^2 = 1
  // (3, 1, 1): d^2 = (3 - 1)^2 = 4 and (4/3 - 1)^2 = 1/9; (10/4 + 20 * 9) / (1/4 + 9) = 19.73
  EXPECT_NEAR(table.at({3, 1, 1}), 182.5 / 9.25, 1e-12);
  // Sharp: weights 1/16 and 81.
  EXPECT_NEAR(ShapeTable(kPoints, {1, 1, 1}, true).at({3, 1, 1}), (0.625 + 1620) / 81.0625, 1e-12);
}

TEST(ShapeTable, StressStretchesADim) {
  const ShapeTable table({{.shape = {1, 1, 1}, .rate = 10}, {.shape = {2, 2, 1}, .rate = 20}},
                         {1, 3, 1}, false);
  // (2, 1, 1): d^2 = 1 from the first, 3 from the second.
  EXPECT_NEAR(table.at({2, 1, 1}), (10 + 20.0 / 3) / (1 + 1.0 / 3), 1e-12);
}

RC_GTEST_PROP(ShapeTableProperty, StaysBetweenItsRates, ()) {
  const ShapeTable table(kPoints, {1, 1, 100}, *rc::gen::arbitrary<bool>());
  const auto dim = [] {
    return static_cast<double>(*rc::gen::inRange<std::int64_t>(1, INT64_MAX));
  };
  const double rate = table.at({dim(), dim(), dim()});
  RC_ASSERT(rate >= 10 - 1e-9);
  RC_ASSERT(rate <= 20 + 1e-9);
}

}  // namespace
}  // namespace mfsdp
