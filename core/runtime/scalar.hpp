// Arithmetic on elements: values widen to Real<T>, and every store rounds once, to nearest even, as
// a GPU's does.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "core/plan/kernels/element_types.hpp"

namespace mfsdp {

[[nodiscard]] inline float widen(float value) { return value; }
[[nodiscard]] inline double widen(double value) { return value; }

[[nodiscard]] inline float widen(Bf16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16U);
}

[[nodiscard]] inline float widen(Fp16 value) {
  const std::uint32_t sign = (value.bits & 0x8000U) << 16U;
  const std::uint32_t magnitude = value.bits & 0x7fffU;
  if (magnitude >= 0x7c00U)  // infinity, NaN: the largest exponent
    return std::bit_cast<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13U);
  if (magnitude < 0x400U) {  // subnormal: a multiple of 2^-24
    const float size = static_cast<float>(magnitude) * 0x1p-24F;
    return sign != 0 ? -size : size;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13U) + (112U << 23U)));
}

/// Values of all codes of a type of 8 bits with `fraction_bits`, whose subnormals are multiples of
/// 2^step.
template <int fraction_bits, int step>
[[nodiscard]] constexpr std::array<float, 256> values_of_codes() {
  std::array<float, 256> values{};
  for (std::uint32_t code = 0; code < 256; ++code) {
    const std::uint32_t magnitude = code & 0x7fU;
    const std::uint32_t exponent = magnitude >> fraction_bits;
    const std::uint32_t implied = exponent == 0 ? 0U : 1U << fraction_bits;
    auto value = static_cast<float>(implied | (magnitude & ((1U << fraction_bits) - 1U)));
    for (int shift = step + (exponent == 0 ? 0 : static_cast<int>(exponent) - 1); shift != 0;
         shift += shift < 0 ? 1 : -1)
      value = shift < 0 ? value / 2 : value * 2;
    values[code] = code < 0x80 ? value : -value;
  }
  return values;
}

inline constexpr std::array<float, 256> kFp8E4m3Values = [] {
  std::array<float, 256> values = values_of_codes<3, -9>();
  values[0x7f] = values[0xff] = std::numeric_limits<float>::quiet_NaN();
  return values;
}();

inline constexpr std::array<float, 256> kFp8E5m2Values = [] {
  std::array<float, 256> values = values_of_codes<2, -16>();
  values[0x7c] = std::numeric_limits<float>::infinity();
  values[0xfc] = -values[0x7c];
  for (const std::size_t nan : {0x7dU, 0x7eU, 0x7fU, 0xfdU, 0xfeU, 0xffU})
    values[nan] = std::numeric_limits<float>::quiet_NaN();
  return values;
}();

inline constexpr std::array<float, 16> kFp4E2m1Values{0,     0.5F,  1,  1.5F,  2,  3,  4,  6,
                                                      -0.0F, -0.5F, -1, -1.5F, -2, -3, -4, -6};

/// Values of all codes of E8M0, by the code.
inline constexpr std::array<float, 256> kE8m0Values = [] {
  std::array<float, 256> values{};
  for (std::uint32_t code = 1; code < 255; ++code) values[code] = std::bit_cast<float>(code << 23U);
  values[0] = std::bit_cast<float>(1U << 22U);  // 2^-127, a subnormal number
  values[255] = std::numeric_limits<float>::quiet_NaN();
  return values;
}();

[[nodiscard]] inline float widen(Fp4E2m1 value) { return kFp4E2m1Values[value.bits & 0xfU]; }
[[nodiscard]] inline float widen(E8m0 value) { return kE8m0Values[value.bits]; }
[[nodiscard]] inline float widen(Fp8E4m3 value) { return kFp8E4m3Values[value.bits]; }
[[nodiscard]] inline float widen(Fp8E5m2 value) { return kFp8E5m2Values[value.bits]; }

/// Rounds to nearest even; NaN stays NaN, what is too large becomes infinity, and in FP8 the largest
/// number, as cvt.rn.satfinite of PTX does. NaN is the code 0x7f of both FP8 types.
template <class T>
[[nodiscard]] T narrow(Real<T> value) {
  return value;
}

template <>
[[nodiscard]] inline Bf16 narrow<Bf16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  // Rounding could carry a NaN's fraction into infinity; a quiet bit keeps it a NaN.
  if ((bits & 0x7fffffffU) > 0x7f800000U)
    return {static_cast<std::uint16_t>((bits >> 16U) | 0x40U)};
  return {static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16U) & 1U)) >> 16U)};
}

template <>
[[nodiscard]] inline Fp16 narrow<Fp16>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const auto with_sign = [&](std::uint32_t rest) {
    return Fp16{static_cast<std::uint16_t>(sign | rest)};
  };
  if (magnitude > 0x7f800000U) return with_sign(0x7e00U | ((magnitude >> 13U) & 0x3ffU));
  // 65520 lies half-way between the largest number, 65504, and 65536: even is up.
  if (magnitude >= 0x477ff000U) return with_sign(0x7c00U);
  if (magnitude < 0x38800000U) {
    // Below 2^-14 fp16 counts in steps of 2^-24, as float does just above 0.5.
    const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
    return with_sign(std::bit_cast<std::uint32_t>(shifted) - 0x3f000000U);
  }
  const std::uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13U) & 1U);
  return with_sign((rounded - (112U << 23U)) >> 13U);
}

/// narrow() to a type of 8 bits whose subnormals are multiples of 2^step and whose largest number is
/// `most`.
template <int fraction_bits, int step>
[[nodiscard]] inline std::uint8_t narrow_to_byte(float value, float most) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 24U) & 0x80U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return 0x7f;
  // The exponent of float's 1.0 where the smallest normal number has exponent 1.
  constexpr std::uint32_t kExponentShift = 127 + step + fraction_bits - 1;
  constexpr std::uint32_t kDropped = 23 - fraction_bits;
  const std::uint32_t size = std::min(magnitude, std::bit_cast<std::uint32_t>(most));
  std::uint32_t code = 0;
  if (size < (kExponentShift + 1) << 23U) {
    // A float counts in steps of 2^step just above 2^(23 + step).
    constexpr std::uint32_t kCounter = static_cast<std::uint32_t>(127 + 23 + step) << 23U;
    const float counted = std::bit_cast<float>(size) + std::bit_cast<float>(kCounter);
    code = std::bit_cast<std::uint32_t>(counted) - kCounter;
  } else {
    const std::uint32_t rounded = size + (1U << (kDropped - 1)) - 1 + ((size >> kDropped) & 1U);
    code = (rounded - (kExponentShift << 23U)) >> kDropped;
  }
  return static_cast<std::uint8_t>(sign | code);
}

template <>
[[nodiscard]] inline Fp8E4m3 narrow<Fp8E4m3>(float value) {
  return {narrow_to_byte<3, -9>(value, fp8_max<Fp8E4m3>)};
}

template <>
[[nodiscard]] inline Fp8E5m2 narrow<Fp8E5m2>(float value) {
  return {narrow_to_byte<2, -16>(value, fp8_max<Fp8E5m2>)};
}

/// Rounds to nearest even, at most to 6; NaN becomes 6, as E2M1 has none (cvt.rn.satfinite of PTX).
template <>
[[nodiscard]] inline Fp4E2m1 narrow<Fp4E2m1>(float value) {
  // Half-way between neighbours; there the code whose last bit is 0 wins.
  constexpr std::array<float, 7> kHalves{0.25F, 0.75F, 1.25F, 1.75F, 2.5F, 3.5F, 5};
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto size = std::bit_cast<float>(bits & 0x7fffffffU);
  if (size != size) return {7};
  std::size_t code = 0;
  for (std::size_t i = 0; i < kHalves.size(); ++i)
    if (size > kHalves[i] || (size == kHalves[i] && i % 2 == 1)) code = i + 1;
  return {static_cast<std::uint8_t>(code | ((bits >> 31U) << 3U))};
}

/// Rounds up to a power of two, at most to 2^127; what is not positive, to 2^-127. NaN stays NaN.
template <>
[[nodiscard]] inline E8m0 narrow<E8m0>(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return {0xff};
  if (bits >= 0x80000000U) return {0};
  const std::uint32_t exponent = bits >> 23U;
  const std::uint32_t fraction = bits & 0x7fffffU;
  if (exponent >= 0xfe) return {0xfe};
  // Subnormal numbers up to 2^-127 have code 0, and those above it 1.
  const bool up = exponent == 0 ? fraction > 0x400000U : fraction > 0;
  return {static_cast<std::uint8_t>(exponent + (up ? 1 : 0))};
}

/// Calls `run` with a value of the plan's floating dtype; not at all for another dtype.
void with_floating(DType dtype, const auto& run) {
  switch (dtype) {
    case DType::bf16: run(Bf16{}); break;
    case DType::fp16: run(Fp16{}); break;
    case DType::fp32: run(float{}); break;
    case DType::fp64: run(double{}); break;
    case DType::fp8_e4m3: run(Fp8E4m3{}); break;
    case DType::fp8_e5m2: run(Fp8E5m2{}); break;
    default: break;
  }
}

}  // namespace mfsdp
