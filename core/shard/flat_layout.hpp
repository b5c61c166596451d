// The offset of each parameter in its group's flat buffer, and the shard of each rank.
//
// Rank r of N owns [r*S, (r+1)*S), S = B / N. Two rules decide the offsets and S.
//
// packed: parameters a, b, f in the model's order, each at a multiple of 64 elements, and S is as
// small as alignment allows. A shard may end inside a row:
//
//   0                64                   192              256           4S = B
//   | a a a a a a . .| b b b b b b b b b b |f f . . . . . . |. . .|
//   |     rank 0     |     rank 1     |     rank 2     |   rank 3  |
//
// megatron_fsdp: S is a multiple of the chunk c, the least common multiple of all rows, so that no
// row is split. With many ranks and rows of several lengths, B can be twice the used elements:
//
//   0            c            2c           3c           4c
//   | a a a a a a a a a | f . b b b b b b b b b b b b | ...
//     a ends inside a chunk   b is its conjugate: it ends on a chunk boundary;
//                             fragments (smaller than c) fill the gap between them
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/plan/placement.hpp"

namespace mfsdp {

/// The sizes of a parameter: elements in all and in one row (1 for a vector).
struct LayoutItem {
  std::int64_t elements = 0;
  std::int64_t row = 1;
};

struct FlatLayout {
  std::int64_t chunk = 1;                  ///< shards are multiples of it, elements
  std::int64_t elements = 0;               ///< B: padded size, a multiple of ranks * chunk
  std::int64_t ranks = 1;                  ///< N: ranks that share the buffer
  std::vector<std::int64_t> offsets = {};  ///< of each item, in input order, elements
  std::vector<std::int64_t> sizes = {};    ///< of each item, elements

  [[nodiscard]] std::int64_t shard() const { return elements / ranks; }
  [[nodiscard]] std::int64_t padding() const;

  friend bool operator==(const FlatLayout&, const FlatLayout&) = default;
};

/// GEMM operands are aligned to 128 bytes: 64 elements of 2 bytes.
inline constexpr std::int64_t kWidestChunk = 64;
/// 16 bytes of 2-byte elements. Kernels on slices read 16 bytes at a time where the slice is
/// aligned to 16 bytes, and single elements elsewhere. On GPUs the two ways add squares for the
/// norm in different orders: with smaller chunks, strategies would no longer agree bit for bit.
inline constexpr std::int64_t kNarrowestChunk = 8;

/// Our own rule: items in their order, each at a multiple of 64 elements. The chunk is the largest
/// of 64, 32, 16 and 8 elements with which rounding the shards up adds at most 1/64 of the used
/// elements; it is 8 where all of them add more. So the padding is less than
///
///   64 elements per item + max(used / 64, 8 elements per rank)
///
/// which is below 2 % of a group with at least 512 elements per rank and 16,384 per item. Groups
/// with fewer elements per rank can have more, but less than 8 elements per rank. Throws
/// OverflowError if sizes leave 63 bits. Requires every elements and ranks > 0.
///
/// With a block above 1, items also begin on multiples of it, and it is the chunk: a shard consists
/// of whole blocks, each of one item. The padding is then less than a block for each item and rank.
/// Requires a power of two.
[[nodiscard]] FlatLayout packed_layout(std::span<const LayoutItem> items, std::int64_t ranks,
                                       std::int64_t block = 1);

/// The rule of Megatron-FSDP v2 (chunk factor, conjugate pairing, row-aligned fragments): the only
/// bound of padding is one chunk per rank. Throws OverflowError if sizes leave 63 bits.
/// Requires every elements, row and ranks > 0 and row dividing elements.
[[nodiscard]] FlatLayout megatron_fsdp_layout(std::span<const LayoutItem> items,
                                              std::int64_t ranks);

/// Lays out the items for `ranks` owners by either rule. Only `packed` can have a block above 1.
[[nodiscard]] FlatLayout make_flat_layout(LayoutRule rule, std::span<const LayoutItem> items,
                                          std::int64_t ranks, std::int64_t block = 1);

/// The part of item `item` in rank `rank`'s shard, relative to the buffer's start.
/// Empty (begin == end) when the rank owns none of it.
[[nodiscard]] Interval owned_interval(const FlatLayout& layout, std::size_t item,
                                      std::int64_t rank);

/// The gaps and the tail that no item covers, ascending.
[[nodiscard]] std::vector<Interval> padding_intervals(const FlatLayout& layout);

}  // namespace mfsdp
