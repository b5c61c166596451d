// Variation between ranks, and the choice of ranks to simulate.
//
// Ranks synchronise in collectives, and in sends and receives. Ranks behave identically, to the
// nanosecond, if they run one plan at equal speed and their groups contain equal ranks; one of them
// then represents all. Colour refinement finds these classes. Initially the colour of a rank is its
// plan and its speed. Then ranks get different colours if their groups, of any communicator,
// contain different sets of colours, until nothing changes:
//
//   2 x 4 ranks in HSDP, rank 5 slow       4 classes of 1, 3, 1 and 3 ranks
//   dp_outer 0:  . a . .                   s  the slow one
//   dp_outer 1:  b s b b                   b  share its dp_shard group, a  its dp_outer group
//                                          .  meet both an a and a b, but never s
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/rational.hpp"
#include "core/plan/plan.hpp"
#include "sim/simulator/lowered_plan.hpp"

namespace mfsdp {

/// A rank whose kernels take `factor` times as long; 1/1000 to 1000, kept to 2^-20.
struct SlowRank {
  std::int64_t rank = 0;
  Rational factor{1, 1};
};

/// Differences between ranks; none by default.
struct RankVariation {
  /// Standard deviation of a kernel's relative duration, drawn anew for each kernel of each rank
  /// (sim/simulator/jitter.hpp); 0 to 1, kept to 2^-20.
  Rational jitter{0, 1};
  std::vector<SlowRank> slow{};
  std::uint64_t seed = 0;
  /// Simulates every rank, also those that behave identically. Only slower.
  bool by_rank = false;

  /// Whether any value differs from the default.
  [[nodiscard]] bool is_any() const { return by_rank || jitter.num != 0 || !slow.empty(); }
};

/// Maximum number of ranks in a mesh with variation, and of simulated ranks.
inline constexpr std::int64_t kMostDistinctRanks = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostSimulatedRanks = 4096;

/// A rank that represents all ranks of its class.
struct Representative {
  std::int64_t rank = 0;         ///< the first of its class
  std::int64_t ranks = 1;        ///< in the class
  std::int64_t kernel_time = 0;  ///< of its kernels relative to their price; kOne is 1
  std::uint32_t of_class = 0;    ///< position of the plan that it runs
};

/// The simulated ranks at the ends of a channel, by position.
struct RankChannel {
  std::uint32_t sender = 0;
  std::uint32_t receiver = 0;
};

/// The program of one class of ranks of a job, and the channels of its plan.
struct ClassOfRanks {
  const Program* program = nullptr;
  std::span<const PeerChannel> channels{};
};

/// The simulated ranks and their groups.
struct RankPartition {
  std::int64_t ranks = 1;                       ///< of the mesh
  std::int64_t jitter = 0;                      ///< of kernel durations; kOne is 1
  std::uint64_t seed = 0;                       ///< of the jitter
  std::vector<Representative> representatives;  ///< by rank
  /// Positions of the representatives in each group of a communicator, ascending.
  std::vector<std::vector<std::uint32_t>> groups;
  /// By representative, then by position of the communicator in the program: position in `groups`.
  std::vector<std::vector<std::uint32_t>> group_of;
  std::vector<RankChannel> channels{};
  /// By representative, then by channel of its plan: position in `channels`.
  std::vector<std::vector<std::uint32_t>> channel_of{};
};

/// Classes of the ranks of the programs' mesh. A communicator joins the ranks that differ only in
/// their index on its axes. Without variation, a program alone has one class for any mesh. Errors
/// name the field: a rank outside the mesh or given twice, a factor or jitter out of range, too
/// many ranks to simulate, a peer outside the mesh.
[[nodiscard]] Result<RankPartition> partition_ranks(std::span<const ClassOfRanks> classes,
                                                    const RankVariation& variation);

}  // namespace mfsdp
