// What matrix products take: the three of a linear layer (GemmKind of core/plan/kernel_spec.hpp).
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

/// c[rows, cols] = scale * a[rows, inner] * b[inner, cols] (+ bias[cols]) (+ c).
template <class T, class C>
struct Gemm {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t inner = 0;
  Matrix<const T> a = {};
  Matrix<const T> b = {};
  const T* bias = nullptr;
  C* c = nullptr;
  std::int64_t c_row = 0;  ///< elements from one row of c to the next; 0: it is contiguous
  bool adds = false;
  Real<T> scale = 1;
  std::span<std::byte> workspace = {};  ///< scratch
  /// Rows that are one product of the library, whose bits may depend on how many there are; 0: all.
  std::int64_t piece_rows = 0;
  /// Of a weight gradient: how its inner dim, the tokens, is cut.
  Pieces pieces = {};

  [[nodiscard]] C* row_of_c(std::int64_t row) const { return c + row * pitch(); }
  /// Elements from one row of c to the next.
  [[nodiscard]] std::int64_t pitch() const { return c_row == 0 ? cols : c_row; }
};

}  // namespace mfsdp::kernels
