#include "core/runtime/scalar.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace mfsdp {
namespace {

/// A small float format by its definition: a value is (-1)^s * fraction * 2^exponent.
struct Format {
  int exponent_bits;
  int fraction_bits;

  [[nodiscard]] int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  [[nodiscard]] int infinity() const { return ((1 << exponent_bits) - 1) << fraction_bits; }

  [[nodiscard]] double value(int bits) const {
    const int magnitude = bits & 0x7fff;
    const double sign = (bits & 0x8000) != 0 ? -1 : 1;
    if (magnitude == infinity()) return sign * std::numeric_limits<double>::infinity();
    if (magnitude > infinity()) return std::numeric_limits<double>::quiet_NaN();
    const int exponent = magnitude >> fraction_bits;
    const int fraction = magnitude & ((1 << fraction_bits) - 1);
    if (exponent == 0) return sign * std::ldexp(fraction, 1 - bias() - fraction_bits);
    return sign * std::ldexp(fraction + (1 << fraction_bits), exponent - bias() - fraction_bits);
  }

  /// Nearest even by search: the magnitudes of a format are in the order of their bits, and what
  /// follows the largest one counts as the next power of two.
  [[nodiscard]] int nearest(double value) const {
    const int sign = std::signbit(value) ? 0x8000 : 0;
    const double size = std::fabs(value);
    int low = 0;
    int high = infinity();
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (this->value(middle) <= size ? low : high) = middle;
    }
    const double above = high == infinity() ? std::ldexp(1.0, bias() + 1) : this->value(high);
    const double to_low = size - this->value(low);
    const double to_high = above - size;
    const bool up = to_high < to_low || (to_high == to_low && low % 2 == 1);
    return sign | (up ? high : low);
  }
};

constexpr Format kBf16{.exponent_bits = 8, .fraction_bits = 7};
constexpr Format kFp16{.exponent_bits = 5, .fraction_bits = 10};

template <class T>
void check_all_patterns(const Format& format) {
  for (int bits = 0; bits < 0x10000; ++bits) {
    const float value = widen(T{static_cast<std::uint16_t>(bits)});
    const double expected = format.value(bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(widen(narrow<T>(value)))) << bits;
      continue;
    }
    ASSERT_EQ(value, expected) << bits;
    ASSERT_EQ(std::signbit(value), bits >= 0x8000) << bits;
    ASSERT_EQ(narrow<T>(value).bits, bits);
  }
}

TEST(Scalar, WidensEveryPatternAndNarrowsItBack) {
  check_all_patterns<Bf16>(kBf16);
  check_all_patterns<Fp16>(kFp16);
}

/// Rounds each pattern's value, the midpoint to the next one, and the floats on both sides of that
/// midpoint, where the result changes.
template <class T>
void check_midpoints(const Format& format) {
  for (int bits = 0; bits < format.infinity(); ++bits) {
    const double above =
        bits + 1 == format.infinity() ? std::ldexp(1.0, format.bias() + 1) : format.value(bits + 1);
    const auto middle = static_cast<float>((format.value(bits) + above) / 2);
    for (const float value : {std::nextafter(middle, 0.0F), middle,
                              std::nextafter(middle, std::numeric_limits<float>::infinity())}) {
      ASSERT_EQ(narrow<T>(value).bits, format.nearest(value)) << bits;
      ASSERT_EQ(narrow<T>(-value).bits, format.nearest(-value)) << bits;
    }
  }
}

TEST(Scalar, RoundsToNearestEvenAroundEveryMidpoint) {
  check_midpoints<Bf16>(kBf16);
  check_midpoints<Fp16>(kFp16);
}

RC_GTEST_PROP(Scalar, RoundsAnyFloatToNearestEven, (std::uint32_t seed)) {
  std::mt19937 random(seed);
  for (int i = 0; i < 1000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    if (std::isnan(value)) {
      RC_ASSERT(std::isnan(widen(narrow<Bf16>(value))));
      RC_ASSERT(std::isnan(widen(narrow<Fp16>(value))));
    } else {
      RC_ASSERT(int{narrow<Bf16>(value).bits} == kBf16.nearest(value));
      RC_ASSERT(int{narrow<Fp16>(value).bits} == kFp16.nearest(value));
    }
  }
}

/// An FP8 type by its definition: codes of magnitudes up to `most` are numbers, with the format's
/// values; what is larger becomes the largest.
template <class T>
void check_fp8(const Format& format, int most) {
  std::vector<double> values;
  for (int code = 0; code <= most; ++code) {
    const int exponent = code >> format.fraction_bits;
    const int implied = exponent == 0 ? 0 : 1 << format.fraction_bits;
    const int fraction = (code & ((1 << format.fraction_bits) - 1)) | implied;
    values.push_back(
        std::ldexp(fraction, std::max(exponent, 1) - format.bias() - format.fraction_bits));
  }
  const auto check = [&](float value, int code) {
    ASSERT_EQ(int{narrow<T>(value).bits}, code) << value;
    ASSERT_EQ(int{narrow<T>(-value).bits}, code | 0x80) << value;
  };
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int code = 0; code <= most; ++code) {
    const auto at = static_cast<std::size_t>(code);
    const auto value = static_cast<float>(values[at]);
    ASSERT_EQ(widen(T{static_cast<std::uint8_t>(code)}), value) << code;
    ASSERT_EQ(widen(T{static_cast<std::uint8_t>(code | 0x80)}), -value) << code;
    check(value, code);
    if (code == most) break;
    // Half-way between two codes, and the floats beside it.
    const auto middle = static_cast<float>((values[at] + values[at + 1]) / 2);
    check(std::nextafter(middle, 0.0F), code);
    check(middle, code % 2 == 0 ? code : code + 1);
    check(std::nextafter(middle, kInfinity), code + 1);
  }
  for (const float large : {std::nextafter(fp8_max<T>, kInfinity), 1e30F, kInfinity})
    check(large, most);
  ASSERT_EQ(fp8_max<T>, values.back());
  for (int code = most + 1; code < 0x80; ++code) {
    const float value = widen(T{static_cast<std::uint8_t>(code)});
    ASSERT_FALSE(std::isfinite(value)) << code;
    ASSERT_EQ(std::isnan(value), std::isnan(widen(T{static_cast<std::uint8_t>(code | 0x80)})));
  }
  ASSERT_EQ(int{narrow<T>(std::numeric_limits<float>::quiet_NaN()).bits}, 0x7f);
  ASSERT_TRUE(std::isnan(widen(T{0x7f})));
}

/// All sixteen values, what lies between two, and what no code has.
TEST(Scalar, Fp4RoundsToNearestEvenAndSaturates) {
  for (std::uint8_t code = 0; code < 16; ++code)
    EXPECT_EQ(narrow<Fp4E2m1>(widen(Fp4E2m1{code})).bits, code);
  for (std::uint8_t code = 0; code < 7; ++code) {
    const float low = widen(Fp4E2m1{code});
    const float high = widen(Fp4E2m1{static_cast<std::uint8_t>(code + 1)});
    const float half = (low + high) / 2;
    const std::uint8_t even = static_cast<std::uint8_t>(code + code % 2);
    EXPECT_EQ(narrow<Fp4E2m1>(half).bits, even) << half;
    EXPECT_EQ(narrow<Fp4E2m1>(-half).bits, even | 8U) << half;
    EXPECT_EQ(narrow<Fp4E2m1>(std::nextafter(half, 0.0F)).bits, code);
    EXPECT_EQ(narrow<Fp4E2m1>(std::nextafter(half, 8.0F)).bits, code + 1);
  }
  EXPECT_EQ(widen(narrow<Fp4E2m1>(1e30F)), 6);
  EXPECT_EQ(widen(narrow<Fp4E2m1>(-std::numeric_limits<float>::infinity())), -6);
  EXPECT_EQ(widen(narrow<Fp4E2m1>(std::nanf(""))), 6);
}

TEST(Scalar, E8m0RoundsUpToPowersOfTwo) {
  for (std::uint32_t code = 0; code < 255; ++code)
    EXPECT_EQ(narrow<E8m0>(widen(E8m0{static_cast<std::uint8_t>(code)})).bits, code);
  EXPECT_EQ(widen(narrow<E8m0>(1.0F)), 1);
  EXPECT_EQ(widen(narrow<E8m0>(std::nextafter(1.0F, 2.0F))), 2);
  EXPECT_EQ(widen(narrow<E8m0>(3.0F)), 4);
  EXPECT_EQ(widen(narrow<E8m0>(0.0F)), 0x1p-127F);
  EXPECT_EQ(widen(narrow<E8m0>(1e-44F)), 0x1p-127F);
  EXPECT_EQ(widen(narrow<E8m0>(0x1.8p-127F)), 0x1p-126F);
  EXPECT_EQ(widen(narrow<E8m0>(std::numeric_limits<float>::infinity())), 0x1p127F);
  EXPECT_TRUE(std::isnan(widen(narrow<E8m0>(std::nanf("")))));
}

TEST(Scalar, Fp8RoundsToNearestEvenAndSaturates) {
  check_fp8<Fp8E4m3>({.exponent_bits = 4, .fraction_bits = 3}, 0x7e);
  check_fp8<Fp8E5m2>({.exponent_bits = 5, .fraction_bits = 2}, 0x7b);
}

TEST(Scalar, KnownValues) {
  EXPECT_EQ(narrow<Fp8E4m3>(448.0F).bits, 0x7e);
  EXPECT_EQ(narrow<Fp8E4m3>(1.0625F).bits, 0x38);  // 1 + 2^-4: a tie, even is down
  EXPECT_EQ(narrow<Fp8E4m3>(0x1p-9F).bits, 0x01);  // the smallest
  EXPECT_EQ(narrow<Fp8E5m2>(57344.0F).bits, 0x7b);
  EXPECT_TRUE(std::isinf(widen(Fp8E5m2{0x7c})));
  EXPECT_EQ(narrow<Bf16>(1.0F).bits, 0x3f80);
  EXPECT_EQ(narrow<Bf16>(1.00390625F).bits, 0x3f80);  // 1 + 2^-8: a tie, even is down
  EXPECT_EQ(narrow<Bf16>(1.01171875F).bits, 0x3f82);  // 1 + 3 * 2^-8: a tie, even is up
  EXPECT_EQ(narrow<Bf16>(3.4e38F).bits, 0x7f80);      // beyond the largest, 3.39e38
  EXPECT_EQ(narrow<Fp16>(65504.0F).bits, 0x7bff);     // the largest
  EXPECT_EQ(narrow<Fp16>(65520.0F).bits, 0x7c00);
  EXPECT_EQ(narrow<Fp16>(0x1p-24F).bits, 0x0001);  // the smallest
  EXPECT_EQ(narrow<Fp16>(0x1p-25F).bits, 0x0000);  // a tie with 0
  EXPECT_EQ(widen(Bf16{0x4049}), 3.140625F);
}

}  // namespace
}  // namespace mfsdp
