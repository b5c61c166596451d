#include "verify/cpu/kernels/soft_cap.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace mfsdp {
namespace {

TEST(SoftCap, TangentIsTheLibrarysInFloat) {
  for (double x = -12; x < 12; x += 0.0037) {
    const auto value = static_cast<float>(x);
    const double expected = std::tanh(static_cast<double>(value));
    // Two units in the last place of the result; a quotient near 0 would lose many more.
    EXPECT_NEAR(hyperbolic_tangent(value), expected, 2e-6 * std::fabs(expected)) << x;
  }
  for (const float small : {1e-30F, 1e-5F, 0.0199F, 0.0201F})
    EXPECT_NEAR(hyperbolic_tangent(small), std::tanh(static_cast<double>(small)),
                1e-5 * static_cast<double>(small));
}

TEST(SoftCap, LeavesSmallValuesAndBoundsLargeOnes) {
  EXPECT_NEAR(softcapped(0.01, 50.0), 0.01, 1e-9);
  EXPECT_DOUBLE_EQ(softcapped(1e9, 50.0), 50);
  EXPECT_DOUBLE_EQ(softcapped(-1e9, 50.0), -50);
  EXPECT_FLOAT_EQ(softcapped(-1e9F, 50.0F), -50);
  EXPECT_DOUBLE_EQ(softcapped(30.0, 30.0), 30 * std::tanh(1.0));
}

TEST(SoftCap, SlopeIsTheDerivative) {
  for (const double x : {-80.0, -3.0, 0.0, 0.5, 40.0}) {
    const double step = 1e-5;
    const double difference =
        (softcapped(x + step, 30.0) - softcapped(x - step, 30.0)) / (2 * step);
    EXPECT_NEAR(softcap_slope(softcapped(x, 30.0), 30.0), difference, 1e-9);
  }
}

}  // namespace
}  // namespace mfsdp
