// The element types of tensors. 16-bit and 8-bit floats are storage only: arithmetic happens in Real<T>.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// 1 sign, 8 exponent and 7 fraction bits: the upper half of a float.
struct Bf16 {
  std::uint16_t bits = 0;
};

/// IEEE 754 binary16: 1 sign, 5 exponent and 10 fraction bits.
struct Fp16 {
  std::uint16_t bits = 0;
};

/// E4M3 of OCP FP8: 1 sign, 4 exponent and 3 fraction bits, no infinity. Magnitudes up to 448;
/// 0x7f and 0xff are NaN.
struct Fp8E4m3 {
  std::uint8_t bits = 0;
};

/// E5M2 of OCP FP8: 1 sign, 5 exponent and 2 fraction bits, as binary16 shortened. Magnitudes up to
/// 57344, then infinity and NaNs.
struct Fp8E5m2 {
  std::uint8_t bits = 0;
};

/// E2M1 of OCP FP4 in the low four bits: 1 sign, 2 exponent bits and 1 fraction bit, neither
/// infinity nor NaN. Magnitudes up to 6.
struct Fp4E2m1 {
  std::uint8_t bits = 0;
};

/// E8M0 of OCP MX formats: 2^(bits - 127); 0xff is NaN.
struct E8m0 {
  std::uint8_t bits = 0;
};

/// The largest number of an FP8 or FP4 type.
template <class T>
inline constexpr float fp8_max = 0;
template <>
inline constexpr float fp8_max<Fp8E4m3> = 448;
template <>
inline constexpr float fp8_max<Fp8E5m2> = 57344;
template <>
inline constexpr float fp8_max<Fp4E2m1> = 6;

template <class T>
inline constexpr bool is_fp8_type =
    std::is_same_v<std::remove_cv_t<T>, Fp8E4m3> || std::is_same_v<std::remove_cv_t<T>, Fp8E5m2>;

/// The type of a kernel's arithmetic and of row statistics: double for double, else float.
template <class T>
using Real = std::conditional_t<std::is_same_v<std::remove_cv_t<T>, double>, double, float>;

/// The plan's name of a type.
template <class T>
inline constexpr DType dtype_of = DType::fp32;
template <>
inline constexpr DType dtype_of<Bf16> = DType::bf16;
template <>
inline constexpr DType dtype_of<Fp16> = DType::fp16;
template <>
inline constexpr DType dtype_of<double> = DType::fp64;
template <>
inline constexpr DType dtype_of<std::int32_t> = DType::int32;
template <>
inline constexpr DType dtype_of<std::int64_t> = DType::int64;
template <>
inline constexpr DType dtype_of<std::uint8_t> = DType::uint8;
template <>
inline constexpr DType dtype_of<Fp8E4m3> = DType::fp8_e4m3;
template <>
inline constexpr DType dtype_of<Fp8E5m2> = DType::fp8_e5m2;

}  // namespace mfsdp
