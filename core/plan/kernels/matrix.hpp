// A matrix whose rows may be parts of wider ones.
#pragma once

#include <cstdint>

#include "core/plan/kernels/operand_field.hpp"

namespace mfsdp {

/// A matrix in row-major memory, of which a GEMM uses the transpose where `transposed`.
template <class T>
struct Matrix {
  T* data = nullptr;
  std::int64_t row = 0;  ///< elements from one stored row to the next
  bool transposed = false;
};

template <class T>
struct OperandField<Matrix<T>> {
  using Element = T;
  static constexpr OperandLayout layout = OperandLayout::columns;
  static void set(Matrix<T>& field, T* data, OperandSizes shape, OperandSizes strides) {
    field = {.data = data, .row = shape[0] == 1 ? shape[1] : strides[0]};
  }
};

}  // namespace mfsdp
