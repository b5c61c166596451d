// Pieces of several lengths into sequences of one length.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mfsdp {

/// Indices of the pieces of each sequence: best fit of the longest first, none is cut; pieces of
/// one length keep their order, and so do those of one sequence. Every length is from 1 to
/// `capacity`. O(n log n).
[[nodiscard]] std::vector<std::vector<std::uint32_t>> pack(std::span<const std::int64_t> lengths,
                                                           std::int64_t capacity);

}  // namespace mfsdp
