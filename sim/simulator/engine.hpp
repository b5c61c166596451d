// The event loop: simulates ranks together, from the first step to the end of the last second one.
//
// It goes in rounds. In each, the ranks with an op that ends now end it and move their streams on;
// then the collectives begin whose last launch has come up, and rates change. So what a rank does
// does not depend on the order in which ranks are looked at.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "sim/simulator/rank.hpp"
#include "sim/simulator/ranks.hpp"
#include "sim/simulator/timetable.hpp"

namespace mfsdp {

/// A list without repetitions of positions below n.
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
  /// Times are kept of the representative at position `kept`, if any. All references must outlive
  /// the engine.
  Engine(const RankPlan& common, const RankPartition& partition, const MemoryLedger& memory,
         std::optional<std::size_t> kept);

  /// Until every rank has ended its second step. Throws OverflowError when time leaves 63 bits.
  Result<void> run();

  /// By position of the representative.
  [[nodiscard]] std::vector<Rank>& ranks() { return ranks_; }
  /// By position of the representative: how long others waited for it in the second step, the sum
  /// over its collectives of the time from the first launch of the group to the last, its own.
  [[nodiscard]] const std::vector<std::int64_t>& waited_for() const { return waited_for_; }

 private:
  /// A group's present collective. It has at most one: on each rank, launches of one communicator
  /// come up after each other, and all of them end it together.
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
  Timetable ends_;                 // of the first op of each rank
  std::size_t unfinished_;         // ranks in their first or second step
  std::vector<std::int64_t> waited_for_;

  // Of one round:
  std::vector<std::uint32_t> due_;       // ranks with an op that ends now
  std::vector<std::uint32_t> arrived_;   // groups whose launch has come up, once for each rank
  std::vector<std::uint32_t> affected_;  // groups beside whose collective one began or ended
  Marked groups_;                        // the same, each once
  Marked touched_;                       // ranks whose next end may change
};

}  // namespace mfsdp
