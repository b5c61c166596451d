// Where each parameter of a group lies in the group's flat buffer, and who owns which part.
//
// Two matrices a, b whose sizes leave a remainder against the chunk c, one bias f:
//
//   0            c            2c           3c           4c
//   | a a a a a a a a a | f . b b b b b b b b b b b b | ...
//     a ends inside a chunk   b is its conjugate: it ends on a chunk boundary;
//                             fragments (smaller than c) fill the gap between them
//
// Rank r of N owns [r*S, (r+1)*S), S = B / N, a multiple of c: no row is ever split.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/placement.hpp"

namespace mfsdp {

/// What the layout needs of a parameter: elements in all and in one row (1 for a vector).
struct LayoutItem {
  std::int64_t elements = 0;
  std::int64_t row = 1;
};

struct FlatLayout {
  std::int64_t chunk = 1;             ///< c: least common multiple of all rows, elements
  std::int64_t elements = 0;          ///< B: padded size, a multiple of ranks * chunk
  std::int64_t ranks = 1;             ///< N: ranks that share the buffer
  std::vector<std::int64_t> offsets;  ///< of each item, in input order, elements
  std::vector<std::int64_t> sizes;    ///< of each item, elements

  [[nodiscard]] std::int64_t shard() const { return elements / ranks; }
  [[nodiscard]] std::int64_t padding() const;

  friend bool operator==(const FlatLayout&, const FlatLayout&) = default;
};

/// Lays out the items for `ranks` owners by the rules of Megatron-FSDP v2 (chunk factor, conjugate
/// pairing, row-aligned fragments). Throws OverflowError if sizes leave 63 bits.
/// Requires every elements, row and ranks > 0 and row dividing elements.
[[nodiscard]] FlatLayout make_flat_layout(std::span<const LayoutItem> items, std::int64_t ranks);

/// The part of item `item` that lies in rank `rank`'s shard, relative to the buffer's start.
/// Empty (begin == end) when the rank owns none of it.
[[nodiscard]] Interval owned_interval(const FlatLayout& layout, std::size_t item,
                                      std::int64_t rank);

/// The gaps and the tail that no item covers, ascending.
[[nodiscard]] std::vector<Interval> padding_intervals(const FlatLayout& layout);

}  // namespace mfsdp
