// Arithmetic on elements: values widen to Real<T>, and every store rounds once, to nearest even, as
// a GPU's does.
#pragma once

#include <bit>
#include <cstdint>

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

/// Rounds to nearest even; NaN stays NaN, what is too large becomes infinity.
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

/// Calls `run` with a value of the plan's floating dtype; not at all for another dtype.
void with_floating(DType dtype, const auto& run) {
  switch (dtype) {
    case DType::bf16: run(Bf16{}); break;
    case DType::fp16: run(Fp16{}); break;
    case DType::fp32: run(float{}); break;
    case DType::fp64: run(double{}); break;
    default: break;
  }
}

}  // namespace mfsdp
