// How a call struct keeps an operand: a pointer, a span, or a view that follows strides.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/plan/kernel_spec.hpp"

namespace mfsdp {

enum class OperandLayout {
  contiguous,
  strided,  ///< any strides, of which the last one is 1
  columns   ///< rows of wider ones, of which it is some columns
};

using OperandSizes = std::span<const std::int64_t>;

/// The element type of a field, const where the kernel only reads; the layout that it can keep; and
/// how it is set. A view specialises it beside its own definition.
template <class Field>
struct OperandField;

template <class T>
struct OperandField<T*> {
  using Element = T;
  static constexpr OperandLayout layout = OperandLayout::contiguous;
  static void set(T*& field, T* data, OperandSizes /*shape*/, OperandSizes /*strides*/) {
    field = data;
  }
};

template <class T>
struct OperandField<std::span<T>> {
  using Element = T;
  static constexpr OperandLayout layout = OperandLayout::contiguous;
  static void set(std::span<T>& field, T* data, OperandSizes shape, OperandSizes /*strides*/) {
    field = {data, static_cast<std::size_t>(product_of(shape))};
  }
};

/// Properties of an operand beside use, role and shape.
struct OperandTerms {
  bool optional = false;                ///< may be absent: the field stays unchanged
  std::optional<Element> element = {};  ///< if the field's type does not determine it
};

/// Properties of the rows that --exact-sums processes piece by piece.
struct PieceTerms {
  bool rows_are_sums = false;  ///< each row is already the sum of a piece
};

}  // namespace mfsdp
