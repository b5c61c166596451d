// How ranks differ from each other, and which of them have to be simulated.
//
// Ranks run one plan and meet in collectives, so ranks that neither differ themselves nor meet
// ranks that others do not meet behave alike, to the nanosecond: one of them stands for all. The
// classes are found by colour refinement. Ranks start with the colour of their own speed; then
// ranks part whose groups, of any communicator, hold other sets of colours, until none does:
//
//   2 x 4 ranks in HSDP, rank 5 slow       4 classes of 1, 3, 1 and 3 ranks
//   dp_outer 0:  . a . .                   s  the slow one
//   dp_outer 1:  b s b b                   b  share its dp_shard group, a  its dp_outer group
//                                          .  meet both an a and a b, but never s
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/rational.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// A rank whose kernels take `factor` times as long; 1/1000 to 1000, kept to 2^-20.
struct SlowRank {
  std::int64_t rank = 0;
  Rational factor{1, 1};
};

/// How ranks differ. By default not at all.
struct RankVariation {
  /// Standard deviation of a kernel's duration as a share of it, drawn anew for each kernel of each
  /// rank (sim/simulator/jitter.hpp); 0 to 1, kept to 2^-20.
  Rational jitter{0, 1};
  std::vector<SlowRank> slow{};
  std::uint64_t seed = 0;
  /// Simulates every rank by itself, also those that behave alike. Only slower.
  bool by_rank = false;

  /// Whether it is other than by default.
  [[nodiscard]] bool is_any() const { return by_rank || jitter.num != 0 || !slow.empty(); }
};

/// Ranks of a mesh that can be told apart, and those of them that are simulated, at most.
inline constexpr std::int64_t kMostDistinctRanks = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostSimulatedRanks = 4096;

/// A rank that stands for all ranks of its class.
struct Representative {
  std::int64_t rank = 0;         ///< the first of its class
  std::int64_t ranks = 1;        ///< in the class
  std::int64_t kernel_time = 0;  ///< of its kernels relative to their price, of kOne
};

/// Which ranks are simulated, and who meets whom.
struct RankPartition {
  std::int64_t ranks = 1;                       ///< of the mesh
  std::int64_t jitter = 0;                      ///< of kernel durations, of kOne
  std::uint64_t seed = 0;                       ///< of the jitter
  std::vector<Representative> representatives;  ///< by rank
  /// Positions of representatives that meet in a communicator, ascending.
  std::vector<std::vector<std::uint32_t>> groups;
  /// By representative, then by position of the communicator in the program: position in `groups`.
  std::vector<std::vector<std::uint32_t>> group_of;
};

/// Ranks of the program's mesh by class. A communicator joins the ranks that differ only in their
/// index on its axes. Without variation one class, whatever the mesh. Errors name the field: a rank
/// outside the mesh or given twice, a factor or jitter out of range, too many ranks to simulate.
[[nodiscard]] Result<RankPartition> partition_ranks(const Program& program,
                                                    const RankVariation& variation);

}  // namespace mfsdp
