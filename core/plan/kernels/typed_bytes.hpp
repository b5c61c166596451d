// Elements of a type that the operand states.
#pragma once

#include "core/plan/kernels/operand_field.hpp"

namespace mfsdp {

/// Contiguous elements and their type. `Byte`: a struct of their first byte (AnyFp8, BlockCode,
/// BlockScale), const where they are only read.
template <class Byte>
struct TypedBytes {
  Byte* data = nullptr;
  DType dtype = DType::fp8_e4m3;
};

/// The type of two operands of which there may be only one.
template <class Byte>
[[nodiscard]] DType dtype_of_either(const TypedBytes<Byte>& a, const TypedBytes<Byte>& b) {
  return a.data != nullptr ? a.dtype : b.dtype;
}

template <class Byte>
struct OperandField<TypedBytes<Byte>> {
  using Element = Byte;
  static constexpr OperandLayout layout = OperandLayout::contiguous;
  static void set(TypedBytes<Byte>& field, Byte* data, OperandSizes /*shape*/,
                  OperandSizes /*strides*/) {
    field.data = data;
  }
};

}  // namespace mfsdp
