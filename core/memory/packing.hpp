// Greedy placement of intervals on an offset axis: what `temporary` and `best_fit` are made of.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/memory/allocation.hpp"

namespace mfsdp {

/// An item as the algorithms see it: its aligned size, and the hull and sum of its lifetimes.
struct Block {
  std::int64_t size = 0;   ///< bytes, a multiple of the alignment
  std::int64_t begin = 0;  ///< of the first lifetime
  std::int64_t end = 0;    ///< of the last lifetime
  std::int64_t alive = 0;  ///< positions, gaps between lifetimes not counted
  std::span<const Lifetime> lifetimes{};
};

/// Offsets under construction. `work` counts the comparisons made, so that a search can stop at a
/// budget that does not depend on the machine.
struct Packing {
  std::vector<std::int64_t> offsets{};
  std::int64_t height = 0;
  std::int64_t work = 0;
};

/// When to give up.
struct PackingLimits {
  std::int64_t work = std::numeric_limits<std::int64_t>::max();    ///< comparisons, inclusive
  std::int64_t height = std::numeric_limits<std::int64_t>::max();  ///< bytes, exclusive
};

/// One block for each item; zero-size items and items never live become blocks without lifetimes.
[[nodiscard]] std::vector<Block> blocks_of(const AllocationProblem& problem);

/// Largest sum of sizes alive at one position. O(n log n).
[[nodiscard]] std::int64_t lower_bound_of(std::span<const Block> blocks);

/// True when the two are live at one position. Both are sorted and disjoint.
[[nodiscard]] bool overlap(std::span<const Lifetime> a, std::span<const Lifetime> b);

/// Which blocks are live together, as a bit for each pair: n^2 / 8 bytes.
class Meetings {
 public:
  explicit Meetings(std::span<const Block> blocks);

  /// Bit b of the row of a: word b / 64, bit b % 64.
  [[nodiscard]] const std::uint64_t* row(std::uint32_t block) const {
    return &bits_[block * words_];
  }

 private:
  std::size_t words_;
  std::vector<std::uint64_t> bits_;
};

/// Places blocks in that order, each at the lowest gap that is free over its lifetimes.
/// O(n^2) comparisons at worst, so nothing when it would take more than the limit of work; and
/// nothing when it would be as high as the limit of height. Several times faster with the meetings
/// of these blocks, which are worth making for several orders.
[[nodiscard]] std::optional<Packing> pack_in_gaps(std::span<const Block> blocks,
                                                  std::span<const std::uint32_t> order,
                                                  const PackingLimits& limits = {},
                                                  const Meetings* meetings = nullptr);

/// Of each block, those that are live together with it; one may stand there several times.
using Neighbours = std::vector<std::vector<std::uint32_t>>;

/// Nothing when there are more than `most` pairs, lifetimes counted one by one.
/// O(n log n + most).
[[nodiscard]] std::optional<Neighbours> neighbours_of(std::span<const Block> blocks,
                                                      std::int64_t most);

/// The packing that pack_in_gaps makes, from neighbours: for many blocks of which few are live at
/// one time, such as gathered weights.
[[nodiscard]] Packing pack_beside(const Neighbours& neighbours, std::span<const Block> blocks,
                                  std::span<const std::uint32_t> order);

/// Places blocks in that order, each above all that were placed before and meet it in time; gaps
/// stay empty. O(n log n). Reaches the lower bound when lifetimes nest and long ones come first,
/// which is what saved activations do.
[[nodiscard]] Packing pack_on_skyline(std::span<const Block> blocks,
                                      std::span<const std::uint32_t> order);

/// Comparisons that first fit may take, about 0.1 s: 11,000 blocks of which most are live at once.
inline constexpr std::int64_t kFirstFitBudget = 64'000'000;
/// Below this many blocks packings are made from meetings; from there on from neighbours, where
/// these are at most kNeighboursPerBlock on average.
inline constexpr std::size_t kManyBlocks = 4096;
inline constexpr std::int64_t kNeighboursPerBlock = 64;

/// First fit in issue order; beyond kFirstFitBudget the blocks that live longest come first, on the
/// skyline: thousands of blocks with saved activations, which nest, come within 1 % of the bound.
[[nodiscard]] Packing first_fit(std::span<const Block> blocks);

/// The lowest packing of several orders and of repairs of the best one; never above first_fit.
/// Comparisons are bounded: above some thousand blocks fewer orders are tried.
[[nodiscard]] Packing pack_best(std::span<const Block> blocks, std::int64_t lower_bound);

}  // namespace mfsdp
