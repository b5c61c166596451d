// LayerNorm: y = h * w + b with h = (x - mean) * rstd and rstd = 1 / sqrt(mean((x - mean)^2) +
// epsilon), of each row (Ba, Kiros and Hinton, arXiv 1607.06450). With u = w * dy:
//
//   dx = rstd * (u - mean(u) - h * mean(u * h))     dw = sum of dy * h     db = sum of dy
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
[[nodiscard]] T layer_normed(T x, Real<T> mean, Real<T> rstd, T weight, T bias) {
  return narrow<T>((widen(x) - mean) * rstd * widen(weight) + widen(bias));
}

/// Norms the stored, rounded sum, because backward reads it.
template <class T>
MFSDP_VECTOR_CLONES void layer_norm_forward(const LayerNormForward<T>& k) {
  using R = Real<T>;
  const R cols = static_cast<R>(k.cols);
  for (std::int64_t i = 0; i < k.rows; ++i) {
    const std::int64_t at = i * k.cols;
    const T* x = k.residual + at;
    if (k.delta != nullptr) {
      T* sum = k.residual_out + at;
      for (std::int64_t j = 0; j < k.cols; ++j)
        sum[j] = narrow<T>(widen(x[j]) + widen(k.delta[at + j]));
      x = sum;
    }
    const R mean = sum_lanes<R>(k.cols, [x](std::int64_t j) { return widen(x[j]); }) / cols;
    const R variance = sum_lanes<R>(k.cols,
                                    [x, mean](std::int64_t j) {
                                      const R difference = widen(x[j]) - mean;
                                      return difference * difference;
                                    }) /
                       cols;
    const R rstd = 1 / std::sqrt(variance + k.epsilon);
    k.mean[i] = mean;
    k.rstd[i] = rstd;
    for (std::int64_t j = 0; j < k.cols; ++j)
      k.normed[at + j] = layer_normed(x[j], mean, rstd, k.weight[j], k.bias[j]);
  }
}

template <class T>
MFSDP_VECTOR_CLONES void layer_norm_backward(const LayerNormBackward<T>& k) {
  using R = Real<T>;
  const R cols = static_cast<R>(k.cols);
  std::fill_n(k.partials, 2 * k.partial_rows * k.cols, R(0));
  for (std::int64_t i = 0; i < k.rows; ++i) {
    const std::int64_t at = i * k.cols;
    const T* x = k.input + at;
    const T* dy = k.d_normed + at;
    T* dx = k.d_residual + at;
    const R mean = k.mean[i];
    const R rstd = k.rstd[i];
    R* const of_weight = k.partials + i % k.partial_rows * k.cols;
    R* const of_bias = of_weight + k.partial_rows * k.cols;
    const R mean_u =
        sum_lanes<R>(k.cols, [&](std::int64_t j) { return widen(k.weight[j]) * widen(dy[j]); }) /
        cols;
    const R mean_uh =
        sum_lanes<R>(k.cols,
                     [&](std::int64_t j) {
                       return widen(k.weight[j]) * widen(dy[j]) * ((widen(x[j]) - mean) * rstd);
                     }) /
        cols;
    for (std::int64_t j = 0; j < k.cols; ++j) {
      const R gradient = widen(dy[j]);
      const R h = (widen(x[j]) - mean) * rstd;
      const R before = k.adds ? widen(dx[j]) : 0;
      of_weight[j] += gradient * h;
      of_bias[j] += gradient;
      dx[j] = narrow<T>(before + rstd * (widen(k.weight[j]) * gradient - mean_u - h * mean_uh));
    }
    if (k.normed != nullptr)
      for (std::int64_t j = 0; j < k.cols; ++j)
        k.normed[at + j] = layer_normed(x[j], mean, rstd, k.weight[j], k.bias[j]);
  }
}

}  // namespace mfsdp::kernels
