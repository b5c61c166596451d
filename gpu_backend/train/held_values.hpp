// Copies elements between the host and a rank's buffers in pieces, because a rank may hold more
// than fits into the host's memory.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>
#include <vector>

#include "core/base/error.hpp"
#include "core/runtime/backend.hpp"
#include "core/runtime/scalar.hpp"
#include "gpu_backend/train/parameter_places.hpp"

namespace mfsdp {

/// Elements that the host processes at once: 4 MiB of the largest type.
inline constexpr std::int64_t kPieceElements = (std::int64_t{4} << 20) / 8;

/// Calls visit(piece) -> Result<void> for consecutive pieces of `elements`, until one fails.
[[nodiscard]] Result<void> for_each_piece(const Interval& elements, const auto& visit) {
  for (std::int64_t begin = elements.begin; begin < elements.end; begin += kPieceElements)
    MFSDP_TRY(
        visit(Interval{.begin = begin, .end = std::min(begin + kPieceElements, elements.end)}));
  return {};
}

/// Copies `elements`, all of which `held` holds, without conversion. `bytes` has exactly their
/// size.
[[nodiscard]] Result<void> download_elements(Backend& backend, const HeldElements& held,
                                             const Interval& elements, std::span<std::byte> bytes);
[[nodiscard]] Result<void> upload_elements(Backend& backend, const HeldElements& held,
                                           const Interval& elements,
                                           std::span<const std::byte> bytes);

/// Rounds values to a floating type; returns them as a buffer stores them.
[[nodiscard]] std::vector<std::byte> rounded(std::span<const double> values, DType dtype);

/// Writes zeros to a whole buffer.
[[nodiscard]] Result<void> clear(Backend& backend, std::span<std::byte> device);

/// Calls visit(element of the parameter, value) for each element that the rank holds, in order. The
/// values of byte states are their codes.
[[nodiscard]] Result<void> for_each_value(Backend& backend, const HeldElements& held,
                                          const auto& visit) {
  Result<void> outcome;
  const auto visit_all = [&]<class T>(T) {
    std::vector<T> values(static_cast<std::size_t>(std::min(kPieceElements, held.elements.size())));
    outcome = for_each_piece(held.elements, [&](const Interval& piece) -> Result<void> {
      const auto count = static_cast<std::size_t>(piece.size());
      const std::span<T> read = std::span(values).first(count);
      MFSDP_TRY(download_elements(backend, held, piece, std::as_writable_bytes(read)));
      for (std::size_t i = 0; i < count; ++i)
        if constexpr (std::is_same_v<T, std::uint8_t>)
          visit(piece.begin + static_cast<std::int64_t>(i), static_cast<double>(read[i]));
        else
          visit(piece.begin + static_cast<std::int64_t>(i), static_cast<double>(widen(read[i])));
      return {};
    });
  };
  if (held.dtype == DType::uint8)
    visit_all(std::uint8_t{});
  else
    with_floating(held.dtype, visit_all);
  return outcome;
}

}  // namespace mfsdp
