// Greedy placement of intervals on an offset axis, for `temporary` and `best_fit`.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/memory/allocation.hpp"

namespace mfsdp {

/// An item for the algorithms: its aligned size, and the hull and sum of its lifetimes.
struct Block {
  std::int64_t size = 0;   ///< bytes, a multiple of the alignment
  std::int64_t begin = 0;  ///< of the first lifetime
  std::int64_t end = 0;    ///< of the last lifetime
  std::int64_t alive = 0;  ///< positions, gaps between lifetimes not counted
  std::span<const Lifetime> lifetimes{};
  /// Of 64 equal parts of all lifetimes: those in which it is live at some position, and those in
  /// which it is live at all. They decide for most pairs whether they are live together.
  std::uint64_t touched = ~std::uint64_t{0};
  std::uint64_t filled = 0;
};

/// Offsets under construction. `work` counts comparisons, so that a search's budget does not depend
/// on the machine.
struct Packing {
  std::vector<std::int64_t> offsets{};
  std::int64_t height = 0;
  std::int64_t work = 0;
};

/// Limits at which an algorithm gives up.
struct PackingLimits {
  std::int64_t work = std::numeric_limits<std::int64_t>::max();    ///< comparisons, inclusive
  std::int64_t height = std::numeric_limits<std::int64_t>::max();  ///< bytes, exclusive
};

/// One block for each item; items of size 0 or without lifetimes become blocks without lifetimes.
[[nodiscard]] std::vector<Block> blocks_of(const AllocationProblem& problem);

/// Largest sum of sizes that are live at one position. O(n log n).
[[nodiscard]] std::int64_t lower_bound_of(std::span<const Block> blocks);
/// The first position at which it is reached.
[[nodiscard]] std::int64_t fullest_position(std::span<const Block> blocks);

/// Whether the two are live at one position. Both are sorted and disjoint.
[[nodiscard]] bool overlap(std::span<const Lifetime> a, std::span<const Lifetime> b);

/// The pairs of blocks that are live together, one bit per pair: n^2 / 8 bytes.
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
/// O(n^2) comparisons at worst. Returns nothing where it would reach the limit of work or of
/// height. The meetings of these blocks make it several times faster, which pays for several
/// orders.
[[nodiscard]] std::optional<Packing> pack_in_gaps(std::span<const Block> blocks,
                                                  std::span<const std::uint32_t> order,
                                                  const PackingLimits& limits = {},
                                                  const Meetings* meetings = nullptr);

/// The blocks that are live together with each block, possibly with repetitions.
using Neighbours = std::vector<std::vector<std::uint32_t>>;

/// Nothing when there are more than `most` pairs of lifetimes. O(n log n + most).
[[nodiscard]] std::optional<Neighbours> neighbours_of(std::span<const Block> blocks,
                                                      std::int64_t most);

/// The result of pack_in_gaps, computed from neighbours: for many blocks of which few are live at
/// once, such as gathered weights.
[[nodiscard]] Packing pack_beside(const Neighbours& neighbours, std::span<const Block> blocks,
                                  std::span<const std::uint32_t> order);

/// Places blocks in that order, each above all placed blocks that are live together with it; gaps
/// stay empty. O(n log n). Reaches the lower bound when lifetimes nest, as those of saved
/// activations do, and long ones come first.
[[nodiscard]] Packing pack_on_skyline(std::span<const Block> blocks,
                                      std::span<const std::uint32_t> order);

/// Comparisons that first fit may take: about 0.1 s, or 11,000 blocks that are mostly live at once.
inline constexpr std::int64_t kFirstFitBudget = 64'000'000;
/// Fewer blocks are packed from meetings; this number or more from neighbours, if these are at most
/// kNeighboursPerBlock on average.
inline constexpr std::size_t kManyBlocks = 4096;
inline constexpr std::int64_t kNeighboursPerBlock = 64;

/// First fit in issue order. Beyond kFirstFitBudget blocks are placed on the skyline, the
/// longest-lived first: thousands of blocks of saved activations, which nest, reach the bound
/// within 1 %.
[[nodiscard]] Packing first_fit(std::span<const Block> blocks);

/// The lowest packing of several orders and of repairs of the best one; never above first_fit.
/// Comparisons are bounded: above some thousand blocks fewer orders are tried.
[[nodiscard]] Packing pack_best(std::span<const Block> blocks, std::int64_t lower_bound);

}  // namespace mfsdp
