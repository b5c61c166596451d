// What the kernels of RMS norms and layer norms take, and column sums, which end their weights'
// gradients.
#pragma once

#include <cstdint>

#include "core/runtime/calls/pieces.hpp"
#include "core/runtime/scalar.hpp"

namespace mfsdp::kernels {

/// normed = x * rstd * (weight_offset + weight) of each row x, with rstd = 1 / sqrt(mean(x^2) +
/// epsilon). x is the residual or, where there is a delta, the stored sum of both; where there is a
/// skip, that is added to what is normed.
template <class T>
struct RmsNormForward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Real<T> epsilon = 0;
  const T* residual = nullptr;
  const T* delta = nullptr;   ///< added to the residual; null with residual_out
  const T* weight = nullptr;  ///< [cols]
  Real<T> weight_offset = 0;  ///< 1 of norms whose weights are centred on 0
  const T* skip = nullptr;    ///< [rows, cols] or null
  T* residual_out = nullptr;
  T* normed = nullptr;
  Real<T>* rstd = nullptr;  ///< [rows]
};

template <class T>
struct RmsNormBackward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t partial_rows = 0;
  const T* d_normed = nullptr;
  const T* input = nullptr;
  const Real<T>* rstd = nullptr;
  const T* weight = nullptr;
  Real<T> weight_offset = 0;
  bool adds = false;  ///< to d_residual
  T* d_residual = nullptr;
  T* normed = nullptr;  ///< may be d_normed: each row is read first; null where not wanted
  /// Of the weight's gradient, [partial_rows, cols]; row i adds to row i % partial_rows.
  Real<T>* partials = nullptr;
  Pieces pieces = {};
};

/// RMS norm of the first `cols` elements of each row of `width`.
template <class T>
struct LatentNormForward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t width = 0;
  Real<T> epsilon = 0;
  const T* input = nullptr;   ///< [rows, width]
  const T* weight = nullptr;  ///< [cols]
  T* normed = nullptr;        ///< [rows, cols]
  Real<T>* rstd = nullptr;    ///< [rows]
};

/// Writes whole rows: the norm's gradient, and what the others' is.
template <class T>
struct LatentNormBackward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t width = 0;
  std::int64_t partial_rows = 0;
  const T* d_normed = nullptr;
  const T* input = nullptr;  ///< [rows, width]
  const Real<T>* rstd = nullptr;
  const T* weight = nullptr;
  const T* d_rest = nullptr;    ///< [rows, width - cols]
  T* d_input = nullptr;         ///< [rows, width]
  T* normed = nullptr;          ///< may be d_normed; null where not wanted
  Real<T>* partials = nullptr;  ///< [partial_rows, cols]
  Pieces pieces = {};
};

/// normed = (x - mean) * rstd * weight + bias of each row x, with rstd = 1 / sqrt(mean of (x -
/// mean)^2 + epsilon). x as above, without a skip.
template <class T>
struct LayerNormForward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Real<T> epsilon = 0;
  const T* residual = nullptr;
  const T* delta = nullptr;   ///< added to the residual; null with residual_out
  const T* weight = nullptr;  ///< [cols]
  const T* bias = nullptr;    ///< [cols]
  T* residual_out = nullptr;
  T* normed = nullptr;
  Real<T>* mean = nullptr;  ///< [rows]
  Real<T>* rstd = nullptr;  ///< [rows]
};

template <class T>
struct LayerNormBackward {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t partial_rows = 0;
  const T* d_normed = nullptr;
  const T* input = nullptr;
  const Real<T>* mean = nullptr;
  const Real<T>* rstd = nullptr;
  const T* weight = nullptr;
  const T* bias = nullptr;
  bool adds = false;  ///< to d_residual
  T* d_residual = nullptr;
  T* normed = nullptr;  ///< as above
  /// [2 partial_rows, cols]: of the weight's gradient, then of the bias's, rows as above.
  Real<T>* partials = nullptr;
  Pieces pieces = {};
};

/// out[cols] = (out +) sum over the rows of in, rounded once.
template <class T, class G>
struct ColumnSums {
  std::int64_t rows = 0;  ///< at least 1
  std::int64_t cols = 0;
  const T* in = nullptr;
  bool adds = false;
  G* out = nullptr;
  std::int64_t partial_rows = 0;  ///< at least 1 where there are partials
  Real<T>* partials = nullptr;    ///< scratch [partial_rows, cols]; null for norm_weight_grad
  Pieces pieces = {};
};

}  // namespace mfsdp::kernels
