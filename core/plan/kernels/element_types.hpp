// The element types of tensors. bf16 and fp16 are storage only: arithmetic happens in Real<T>.
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

}  // namespace mfsdp
