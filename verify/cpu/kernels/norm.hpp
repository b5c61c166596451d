// RMS norm: y = x * rstd * w, w the weight or 1 + weight, with rstd = 1 / sqrt(mean(x^2) +
// epsilon), of each row (Zhang and Sennrich, arXiv 1910.07467). With u = w * dy:
//
//   dx = rstd * u - x * rstd^3 * mean(u * x)        dw = sum over rows of dy * x * rstd
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "core/plan/kernels/norm.hpp"
#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/lanes.hpp"
#include "verify/cpu/kernels/vector_clones.hpp"

namespace mfsdp::kernels {

/// The only rounding of a norm's output: backward recomputes the same bits.
template <class T>
[[nodiscard]] T normed_value(T x, Real<T> rstd, Real<T> weight) {
  return narrow<T>(widen(x) * rstd * weight);
}

template <class T>
[[nodiscard]] Real<T> reciprocal_root_mean_square(const T* row, std::int64_t cols,
                                                  Real<T> epsilon) {
  const auto sum =
      sum_lanes<Real<T>>(cols, [row](std::int64_t j) { return widen(row[j]) * widen(row[j]); });
  return 1 / std::sqrt(sum / static_cast<Real<T>>(cols) + epsilon);
}

/// Norms the stored, rounded sum, because backward reads it.
template <class T>
MFSDP_VECTOR_CLONES void rms_norm_forward(const RmsNormForward<T>& k) {
  for (std::int64_t i = 0; i < k.rows; ++i) {
    const std::int64_t at = i * k.cols;
    const T* x = k.residual + at;
    if (k.delta != nullptr) {
      T* sum = k.residual_out + at;
      for (std::int64_t j = 0; j < k.cols; ++j)
        sum[j] = narrow<T>(widen(x[j]) + widen(k.delta[at + j]));
      x = sum;
    }
    const Real<T> rstd = reciprocal_root_mean_square(x, k.cols, k.epsilon);
    k.rstd[i] = rstd;
    if (k.skip != nullptr) {
      for (std::int64_t j = 0; j < k.cols; ++j)
        k.normed[at + j] = narrow<T>(widen(k.skip[at + j]) +
                                     widen(x[j]) * rstd * (k.weight_offset + widen(k.weight[j])));
      continue;
    }
    for (std::int64_t j = 0; j < k.cols; ++j)
      k.normed[at + j] = normed_value(x[j], rstd, k.weight_offset + widen(k.weight[j]));
  }
}

/// One row of the backward: dx = (dx +) the gradient of x, partial += that of the weight.
template <class T, class D>
void norm_row_backward(std::int64_t cols, const D* dy, const T* x, Real<T> rstd, const T* weight,
                       Real<T> offset, bool adds, T* dx, Real<T>* partial) {
  const auto dot = sum_lanes<Real<T>>(cols, [=](std::int64_t j) {
    return (offset + widen(weight[j])) * widen(dy[j]) * widen(x[j]);
  });
  const Real<T> shrink = dot * rstd * rstd * rstd / static_cast<Real<T>>(cols);
  for (std::int64_t j = 0; j < cols; ++j) {
    const Real<T> gradient = widen(dy[j]);
    const Real<T> before = adds ? widen(dx[j]) : 0;
    partial[j] += gradient * widen(x[j]) * rstd;
    dx[j] =
        narrow<T>(before + (rstd * (offset + widen(weight[j])) * gradient - widen(x[j]) * shrink));
  }
}

template <class T>
MFSDP_VECTOR_CLONES void rms_norm_backward(const RmsNormBackward<T>& k) {
  std::fill_n(k.partials, k.partial_rows * k.cols, Real<T>(0));
  for (std::int64_t i = 0; i < k.rows; ++i) {
    const T* x = k.input + i * k.cols;
    norm_row_backward(k.cols, k.d_normed + i * k.cols, x, k.rstd[i], k.weight, k.weight_offset,
                      k.adds, k.d_residual + i * k.cols, k.partials + i % k.partial_rows * k.cols);
    if (k.normed != nullptr)
      for (std::int64_t j = 0; j < k.cols; ++j)
        k.normed[i * k.cols + j] =
            normed_value(x[j], k.rstd[i], k.weight_offset + widen(k.weight[j]));
  }
}

/// out[cols] = (out +) sum over rows, in row order and rounded once. `sums`: space for one row.
template <class T, class G>
void column_sums(std::int64_t rows, std::int64_t cols, const T* in, Real<T>* sums, bool adds,
                 G* out) {
  for (std::int64_t j = 0; j < cols; ++j) sums[j] = widen(in[j]);
  for (std::int64_t i = 1; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) sums[j] += widen(in[i * cols + j]);
  for (std::int64_t j = 0; j < cols; ++j)
    out[j] = narrow<G>(adds ? widen(out[j]) + sums[j] : sums[j]);
}

}  // namespace mfsdp::kernels
