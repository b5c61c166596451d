// FP8 on the CPU (core/plan/kernels/fp8.hpp): casts with a scale, and GEMMs of FP8 values with sums
// in fp32.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "core/plan/kernels/fp8.hpp"
#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/product.hpp"

namespace mfsdp::kernels {

/// The larger of two magnitudes; NaN if one is.
[[nodiscard]] inline float larger_magnitude(float a, float b) {
  return std::isnan(a) || a >= b ? a : b;
}

template <class T>
[[nodiscard]] float largest_magnitude(const T* values, std::int64_t count) {
  float most = 0;
  for (std::int64_t i = 0; i < count; ++i)
    most = larger_magnitude(most, std::fabs(static_cast<float>(widen(values[i]))));
  return most;
}

/// The number that values are multiplied by before they are cast.
[[nodiscard]] inline float cast_factor(float amax, float most) {
  if (amax == 0 || !std::isfinite(amax)) return 1;
  const float factor = most / amax;
  return std::isinf(factor) ? std::numeric_limits<float>::max() : factor;
}

inline void keep_amaxes(const AmaxHistory& k) {
  for (std::int64_t tensor = 0; tensor < k.tensors; ++tensor) {
    const float last = std::exchange(k.next_amax[tensor], 0.0F);
    if (last == 0) continue;
    float largest = last;
    for (std::int64_t slot = 1; slot < k.slots; ++slot) {
      const float kept = k.history[slot * k.tensors + tensor];
      k.history[(slot - 1) * k.tensors + tensor] = kept;
      if (!k.recent) largest = std::fmax(largest, kept);
    }
    k.history[(k.slots - 1) * k.tensors + tensor] = last;
    if (largest != 0 && std::isfinite(largest)) k.amax[tensor] = largest;
  }
}

template <class Fp8, class T>
void cast_scaled_to(const CastScaled<T>& k) {
  const auto rounded = [&](float value) {
    return k.through_bf16 ? static_cast<float>(widen(narrow<Bf16>(value))) : value;
  };
  const float factor = cast_factor(rounded(*k.amax), fp8_max<Fp8>);
  for (std::int64_t row = 0; row < k.rows; ++row)
    for (std::int64_t col = 0; col < k.cols; ++col) {
      const auto value = static_cast<float>(widen(k.input[row * k.cols + col]));
      const std::uint8_t code = narrow<Fp8>(rounded(value) * factor).bits;
      if (k.output.data != nullptr) k.output.data[row * k.cols + col].bits = code;
      if (k.output_t.data != nullptr) k.output_t.data[col * k.rows + row].bits = code;
    }
  *k.output_scale = 1 / factor;
}

template <class T>
void cast_scaled(const CastScaled<T>& k) {
  if (k.dtype() == DType::fp8_e4m3)
    cast_scaled_to<Fp8E4m3>(k);
  else
    cast_scaled_to<Fp8E5m2>(k);
  if (k.next_amax != nullptr)
    *k.next_amax = larger_magnitude(*k.next_amax, largest_magnitude(k.input, k.rows * k.cols));
}

/// Values of `rows` whole rows of a matrix with rows of `cols`.
inline void widen_rows(TypedBytes<const AnyFp8> matrix, std::int64_t first, std::int64_t rows,
                       std::int64_t cols, std::vector<float>& to) {
  const auto& values = matrix.dtype == DType::fp8_e4m3 ? kFp8E4m3Values : kFp8E5m2Values;
  to.resize(static_cast<std::size_t>(rows * cols));
  const AnyFp8* from = matrix.data + first * cols;
  for (std::size_t i = 0; i < to.size(); ++i) to[i] = values[from[i].bits];
}

/// Each element of c is one chain of sums in fp32, as in multiply(), which the scales multiply at
/// its end.
template <class C>
void fp8_gemm(const Fp8Gemm<C>& g) {
  constexpr std::int64_t kRows = 256;
  constexpr std::int64_t kCols = 1024;
  const float scale = *g.a_scale * *g.b_scale * g.scale;
  std::vector<float> a, b, sums(static_cast<std::size_t>(kRows * kCols));
  for (std::int64_t col = 0; col < g.cols; col += kCols) {
    const std::int64_t cols = std::min(kCols, g.cols - col);
    widen_rows(g.b, col, cols, g.inner, b);
    for (std::int64_t row = 0; row < g.rows; row += kRows) {
      const std::int64_t rows = std::min(kRows, g.rows - row);
      widen_rows(g.a, row, rows, g.inner, a);
      multiply(Matrix<const float>{.data = a.data(), .row = g.inner},
               Matrix<const float>{.data = b.data(), .row = g.inner, .transposed = true},
               Matrix<float>{.data = sums.data(), .row = cols}, rows, cols, g.inner);
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j) {
          C& out = g.c[(row + i) * g.cols + col + j];
          auto sum = static_cast<Real<C>>(scale * sums[static_cast<std::size_t>(i * cols + j)]);
          if (g.bias != nullptr) sum += widen(g.bias[col + j]);
          if (g.adds) sum += widen(out);
          out = narrow<C>(sum);
        }
    }
  }
}

}  // namespace mfsdp::kernels
