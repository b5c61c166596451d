// Elements of checkpoints as numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/formats/element_type.hpp"

namespace mfsdp {

/// Whether number_at() can read elements of this type.
[[nodiscard]] bool is_numeric(const ElementType& type);

/// Element `i` as a number; exact but for integers beyond 2^53.
[[nodiscard]] double number_at(const ElementType& type, std::span<const std::byte> bytes,
                               std::size_t i);

/// Elements of one floating type in another, rounded to nearest, ties to even. The sizes of both
/// spans are of equally many elements.
void cast_elements(const ElementType& from, std::span<const std::byte> in, const ElementType& to,
                   std::span<std::byte> out);

}  // namespace mfsdp
