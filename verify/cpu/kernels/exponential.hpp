// e^x and its inverse for kernels. The C library's float versions need a call for each element and
// differ between libraries and CPUs. These are plain arithmetic, which compilers vectorise, and
// have the same bits everywhere. In double, which only tests use, they are the C library's.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>

namespace mfsdp {

/// Within 1 unit in the last place. Small results become subnormal, then 0, large ones infinity;
/// NaN stays NaN.
///
/// With n the integer nearest to x / ln 2 and r = x - n ln 2, e^x = 2^n e^r, |r| <= 0.35: there a
/// Taylor polynomial of degree 7 is off by less than r^8 / 8! < 6e-9 of e^r.
[[nodiscard]] inline float exponential(float x) {
  // Beyond these limits results are 0 and infinity. The limits keep n small.
  x = x < -104.0F ? -104.0F : x;
  x = x > 89.0F ? 89.0F : x;
  // Adding 1.5 * 2^23 leaves no bits for a fraction: the sum's last bits are n.
  constexpr float shift = 0x1.8p23F;
  const float shifted = x * 0x1.715476p0F + shift;
  const float n = shifted - shift;
  // ln 2 in two parts, the first so short that n times it is exact.
  const float r = (x - n * 0x1.62ep-1F) - n * 0x1.0bfbe8p-15F;
  float fraction = 1.0F / 5040;
  fraction = fraction * r + 1.0F / 720;
  fraction = fraction * r + 1.0F / 120;
  fraction = fraction * r + 1.0F / 24;
  fraction = fraction * r + 1.0F / 6;
  fraction = fraction * r + 1.0F / 2;
  fraction = fraction * (r * r) + r + 1;
  // 2^n in two factors: n may exceed the exponent range of a float.
  const auto power = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(shifted) -
                                               std::bit_cast<std::uint32_t>(shift));
  const std::int32_t half = power >> 1;
  const auto power_of_two = [](std::int32_t exponent) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(exponent + 127) << 23U);
  };
  return fraction * power_of_two(half) * power_of_two(power - half);
}

[[nodiscard]] inline double exponential(double x) { return std::exp(x); }

/// ln x of a normal x > 0, within 1 unit in the last place; infinity stays infinity, NaN stays NaN.
///
/// With x = 2^n m, m from sqrt(1/2) to sqrt(2), and s = (m - 1) / (m + 1), ln x = n ln 2 +
/// 2 (s + s^3 / 3 + s^5 / 5 + ...), |s| < 0.172: the first term left out, s^15 / 15, is below
/// 1e-12 of the sum. In double, rounded once.
[[nodiscard]] inline float logarithm(float x) {
  if (!(x < std::numeric_limits<float>::infinity())) return x;
  const auto bits = std::bit_cast<std::uint64_t>(static_cast<double>(x));
  constexpr std::uint64_t root_half = 0x3fe6a09e667f3bcdU;  // sqrt(1/2), as a double's bits
  const std::uint64_t power = (bits - root_half) >> 52U;    // n, modulo 2^12
  const double n = static_cast<double>(static_cast<std::int64_t>(power << 52U) >> 52);
  const double m = std::bit_cast<double>(bits - (power << 52U));
  const double s = (m - 1) / (m + 1);
  const double square = s * s;
  double series = 1.0 / 13;
  series = series * square + 1.0 / 11;
  series = series * square + 1.0 / 9;
  series = series * square + 1.0 / 7;
  series = series * square + 1.0 / 5;
  series = series * square + 1.0 / 3;
  series = series * square + 1;
  return static_cast<float>(n * std::numbers::ln2 + 2 * s * series);
}

[[nodiscard]] inline double logarithm(double x) { return std::log(x); }

}  // namespace mfsdp
