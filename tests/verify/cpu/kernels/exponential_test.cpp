#include "verify/cpu/kernels/exponential.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "tests/support/samples.hpp"
#include "verify/cpu/kernels/vector_clones.hpp"

namespace mfsdp {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// The distance from a float to the next, for a result of this size; 2^-149 for subnormal ones.
double last_place(double value) { return std::ldexp(1, std::max(std::ilogb(value) - 23, -149)); }

/// Every 97th float from 0 to `end`, which has the sign of the wanted ones.
template <class Visit>
void for_floats(float end, const Visit& visit) {
  const auto first = std::bit_cast<std::uint32_t>(std::copysign(0.0F, end));
  for (std::uint32_t bits = first; bits <= std::bit_cast<std::uint32_t>(end);
       bits += test::kOneCase ? 9'973 : 97)
    visit(std::bit_cast<float>(bits));
}

TEST(Exponential, IsWithinOneUnitInTheLastPlace) {
  double worst = 0;
  const auto compare = [&](float x) {
    const double expected = std::exp(static_cast<double>(x));
    worst = std::max(worst, std::fabs(exponential(x) - expected) / last_place(expected));
  };
  for_floats(88.72F, compare);
  for_floats(-103.9F, compare);
  EXPECT_LT(worst, 1);
  EXPECT_GT(worst, 0.5);  // no float function rounds all of these right by chance
}

TEST(Exponential, EndsInZeroAndInfinity) {
  EXPECT_EQ(exponential(0.0F), 1);
  EXPECT_EQ(exponential(-0.0F), 1);
  EXPECT_EQ(exponential(-103.9F), 0x1p-149F);  // e^-103.9 = 7.5e-46 > 2^-150 = 7.0e-46
  EXPECT_EQ(exponential(-104.5F), 0);
  EXPECT_EQ(exponential(-kInfinity), 0);
  EXPECT_LT(exponential(88.72F), kInfinity);  // ln(2^128) = 88.7228
  EXPECT_EQ(exponential(88.73F), kInfinity);
  EXPECT_EQ(exponential(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(exponential(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Logarithm, IsWithinOneUnitInTheLastPlace) {
  double worst = 0;
  for (std::uint32_t bits = 0x00800000; bits < 0x7f800000; bits += test::kOneCase ? 9'973 : 997) {
    const auto x = std::bit_cast<float>(bits);
    const double expected = std::log(static_cast<double>(x));
    if (expected != 0)
      worst = std::max(worst, std::fabs(logarithm(x) - expected) / last_place(expected));
  }
  EXPECT_LT(worst, 0.501);  // computed in double, rounded once
}

TEST(Logarithm, KeepsZeroInfinityAndNan) {
  EXPECT_EQ(logarithm(1.0F), 0);
  EXPECT_EQ(logarithm(2.0F), static_cast<float>(std::log(2.0)));
  EXPECT_EQ(logarithm(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(logarithm(std::numeric_limits<float>::quiet_NaN())));
}

MFSDP_VECTOR_CLONES void exponentials(std::span<float> values) {
  for (float& value : values) value = exponential(value);
}

TEST(Exponential, HasTheSameBitsInEveryClone) {
  std::array<float, 1024> values{};
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i) * 0.19F - 104;
  std::array<float, 1024> clones = values;
  exponentials(clones);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(clones[i], exponential(values[i]));
}

}  // namespace
}  // namespace mfsdp
