// The event loop: simulates ranks together, from the first step until every rank ended its second
// one.
//
// It runs in rounds. In each round, all ranks with an op that ends now end it and advance their
// streams. Then the collectives begin whose last launch is ready, and rates change. So the result
// does not depend on the order in which ranks are processed.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/simulator/rank.hpp"
#include "sim/simulator/ranks.hpp"
#include "sim/simulator/timetable.hpp"

namespace mfsdp {

/// A set of positions below n, as a list.
class Marked {
 public:
  explicit Marked(std::size_t n) : is_marked_(n) {}

  void add(std::uint32_t position) {
    if (is_marked_[position] != 0) return;
    is_marked_[position] = 1;
    list_.push_back(position);
  }
  void clear() {
    for (const std::uint32_t position : list_) is_marked_[position] = 0;
    list_.clear();
  }
  [[nodiscard]] const std::vector<std::uint32_t>& list() const { return list_; }

 private:
  std::vector<char> is_marked_;
  std::vector<std::uint32_t> list_;
};

class Engine {
 public:
  /// Times are recorded for the representative at position `kept`, if any. All references must
  /// outlive the engine.
  Engine(const RankPlan& common, const RankPartition& partition, const MemoryLedger& memory,
         std::optional<std::size_t> kept);

  /// Runs until every rank has ended its second step. Throws OverflowError if time exceeds 63 bits.
  Result<void> run();

  /// Ranks by position of the representative.
  [[nodiscard]] std::vector<Rank>& ranks() { return ranks_; }
  /// By position of the representative: how long other ranks waited for it in the second step. This
  /// is the sum, over the collectives that it reached last, of the time from the group's first
  /// launch to its own.
  [[nodiscard]] const std::vector<std::int64_t>& waited_for() const { return waited_for_; }

 private:
  /// The pending or running collective of a group. There is at most one: on each rank, launches of
  /// a communicator run in order, and all ranks end a collective at once.
  struct Meeting {
    std::uint32_t arrived = 0;  ///< ranks of the group
    std::int64_t rate = 0;
  };

  Result<void> step_ranks();
  void arrive(std::uint32_t group);
  void share();
  void share_link(std::uint32_t group);
  Result<void> pass_time();

  const RankPartition& partition_;
  std::int64_t now_ = 0;
  std::vector<Rank> ranks_;
  std::vector<Meeting> meetings_;  // by group
  Timetable ends_;                 // by rank: end of its first op
  std::size_t unfinished_;         // ranks in their first or second step
  std::vector<std::int64_t> waited_for_;

  // State of one round:
  std::vector<std::uint32_t> due_;       // ranks with an op that ends now
  std::vector<std::uint32_t> arrived_;   // groups whose launch is ready, once for each rank
  std::vector<std::uint32_t> affected_;  // groups sharing a link with one that began or ended
  Marked groups_;                        // the same without duplicates
  Marked touched_;                       // ranks whose next end may change
};

}  // namespace mfsdp
