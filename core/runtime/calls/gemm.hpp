// What matrix products take. The three of a linear layer y = x w^T (+ bias), with m tokens, n
// output features and k input features:
//
//   forward           y[m, n]  = x[m, k]    w[n, k]^T (+ bias[n])
//   input gradient    dx[m, k] = dy[m, n]   w[n, k]
//   weight gradient   dw[n, k] = dy[m, n]^T x[m, k]   (+ dw)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/runtime/calls/pieces.hpp"
#include "core/runtime/scalar.hpp"

namespace mfsdp {

/// A matrix in row-major memory, of which a product uses the transpose where `transposed`.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t row = 0;  ///< elements from one stored row to the next
  bool transposed = false;
};

}  // namespace mfsdp

namespace mfsdp::kernels {

/// The attribute "kind" of a GEMM.
enum class GemmKind { forward = 0, input_gradient = 1, weight_gradient = 2 };

/// c[rows, cols] = a[rows, inner] * b[inner, cols] (+ bias[cols]) (+ c).
template <class T, class C>
struct Gemm {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t inner = 0;
  Matrix<const T> a = {};
  Matrix<const T> b = {};
  const T* bias = nullptr;
  C* c = nullptr;  ///< contiguous
  bool adds = false;
  std::span<std::byte> workspace = {};  ///< scratch
  /// Rows that are one product of the library, whose bits may depend on how many there are; 0: all.
  std::int64_t piece_rows = 0;
  /// Of a weight gradient: how its inner dim, the tokens, is cut.
  Pieces pieces = {};
};

}  // namespace mfsdp::kernels
