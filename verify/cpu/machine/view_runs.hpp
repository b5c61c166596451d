// The bytes of memory that an operand covers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/base/quantity.hpp"
#include "core/runtime/operand_view.hpp"

namespace mfsdp {

/// Whether the elements of the dims from `from` on are contiguous.
[[nodiscard]] inline bool is_contiguous(const OperandView& view, std::size_t from = 0) {
  std::int64_t stride = 1;
  for (std::size_t dim = view.shape.size(); dim-- > from; stride *= view.shape[dim])
    if (view.shape[dim] != 1 && view.strides[dim] != stride) return false;
  return true;
}

/// Calls take(first byte, number of bytes) for contiguous runs of the view's elements: one run if
/// the view is contiguous, else one for each index of the dims before the contiguous ones.
void for_each_run(const OperandView& view, const auto& take, std::size_t dim = 0,
                  std::int64_t element = 0) {
  if (is_contiguous(view, dim)) {
    const std::int64_t elements = product_of(view.shape.subspan(dim));
    if (elements > 0)
      take(view.data + element * size_of(view.dtype),
           static_cast<std::size_t>(bytes_of(elements, view.dtype).value));
    return;
  }
  for (std::int64_t i = 0; i < view.shape[dim]; ++i)
    for_each_run(view, take, dim + 1, element + i * view.strides[dim]);
}

}  // namespace mfsdp
