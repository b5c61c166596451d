#include "core/plan/state_codes.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace mfsdp {
namespace {

/// The values of bitsandbytes' create_dynamic_map, as that function makes them: for each decade the
/// middles of a linspace from 0.1 to 1; then 0 and 1.
std::vector<double> dynamic_map(bool is_signed) {
  constexpr int kDecades = 7;
  std::vector<double> map{0, 1};
  for (int i = 0; i < kDecades; ++i) {
    const int items = 1 << (is_signed ? i : i + 1);
    const double step = 0.9 / items;
    for (int j = 0; j < items; ++j) {
      const double value = std::pow(10, i - kDecades + 1) * (0.1 + step * j + step / 2);
      map.push_back(value);
      if (is_signed) map.push_back(-value);
    }
  }
  std::ranges::sort(map);
  return map;
}

template <bool is_signed>
void expect_map() {
  const auto values = values_of_codes<is_signed>();
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const std::vector<double> map = dynamic_map(is_signed);
  ASSERT_EQ(map.size(), 256U);  // 2 + 2 (1 + 2 + ... + 64), or 2 + 2 + 4 + ... + 128
  for (std::size_t i = 0; i < map.size(); ++i)
    EXPECT_NEAR(sorted[i], map[i], std::fabs(map[i]) * 0x1p-23) << i;
}

TEST(StateCodes, AreThoseOfDynamicTreeQuantisation) {
  expect_map<true>();
  expect_map<false>();
}

/// The smallest and the largest below 1: (2 + 9) / (256 x 5^7), (4 + 9) / (512 x 5^7), 1 - 9/1280,
/// 1 - 9/2560.
TEST(StateCodes, HaveTheseEnds) {
  EXPECT_FLOAT_EQ(value_of_code<true>(1), 5.5e-7F);
  EXPECT_FLOAT_EQ(value_of_code<false>(2), 3.25e-7F);
  EXPECT_FLOAT_EQ(value_of_code<true>(127), 0.99296875F);
  EXPECT_FLOAT_EQ(value_of_code<true>(255), -0.99296875F);
  EXPECT_FLOAT_EQ(value_of_code<false>(255), 0.996484375F);
  EXPECT_EQ(value_of_code<true>(128), 1);
  EXPECT_EQ(value_of_code<false>(1), 1);
  EXPECT_EQ(value_of_code<true>(0), 0);
  EXPECT_EQ(value_of_code<false>(0), 0);
}

template <bool is_signed>
void expect_own_code() {
  for (int code = 0; code < 256; ++code) {
    const float value = value_of_code<is_signed>(static_cast<std::uint8_t>(code));
    EXPECT_EQ(code_of_value<is_signed>(value), code) << value;
  }
}

TEST(StateCodes, AValueHasItsOwnCode) {
  expect_own_code<true>();
  expect_own_code<false>();
}

/// By looking at all of them.
template <bool is_signed>
double nearest(float value) {
  double best = 2;
  for (const double candidate : values_of_codes<is_signed>())
    if (std::fabs(candidate - value) < std::fabs(best - value)) best = candidate;
  return best;
}

template <bool is_signed>
void expect_nearest(float value) {
  const double got = value_of_code<is_signed>(code_of_value<is_signed>(value));
  const double best = nearest<is_signed>(value);
  if (!is_signed && value > 0 && best == 0) return;  // NothingAboveZeroBecomesZero
  // Of two that are equally near either will do; how near is rounded to fp32.
  EXPECT_LE(std::fabs(got - value), std::fabs(best - value) + std::fabs(value) * 0x1p-22)
      << value << ": " << got << ", not " << best;
}

TEST(StateCodes, TheNearestIsTaken) {
  std::mt19937 random(7);
  std::uniform_real_distribution<float> exponent(-8, 0);
  for (int i = 0; i < 2'000; ++i) {
    const float value = std::pow(10.0F, exponent(random));
    expect_nearest<true>(value);
    expect_nearest<true>(-value);
    expect_nearest<false>(value);
  }
  for (const float value : {0.0F, 1.0F, 0.1F, 0.01F, 0.9965F, 0.9999F}) {
    expect_nearest<true>(value);
    expect_nearest<true>(-value);
    expect_nearest<false>(value);
  }
}

/// A second moment of 0 beside a first one that is not would divide by epsilon.
TEST(StateCodes, NothingAboveZeroBecomesZero) {
  EXPECT_EQ(code_of_value<false>(1e-20F), 2);
  EXPECT_EQ(code_of_value<false>(0x1p-149F), 2);
  EXPECT_EQ(code_of_value<false>(0), 0);
  EXPECT_EQ(code_of_value<true>(2.7e-7F), 0);  // half of 5.5e-7 is 2.75e-7
  EXPECT_EQ(code_of_value<true>(2.8e-7F), 1);
  EXPECT_EQ(code_of_value<true>(-2.8e-7F), 129);
  EXPECT_EQ(code_of_value<true>(std::nanf("")), 0);
}

}  // namespace
}  // namespace mfsdp
