// The event loop: simulates ranks together, from the first step until every rank ended its second
// one.
//
// It runs in rounds. In each round, all ranks with an op that ends now end it and advance their
// streams. Then the collectives begin whose last launch is ready, and rates change. So the result
// does not depend on the order in which ranks are processed. A rank without a collective advances
// alone until it launches one; the others learn of that in the round of that time.
#pragma once

#include <cstdint>
#include <deque>
#include <span>
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
  /// `plans`: of each class of ranks. Times are recorded for the representatives at positions
  /// `kept`. All references must outlive the engine.
  Engine(std::span<const RankPlan> plans, const RankPartition& partition,
         std::span<const std::size_t> kept);

  /// Runs until every rank has ended its second step. Throws OverflowError if time exceeds 63 bits.
  /// Errors: ranks that wait for each other for ever, or that disagree on a collective or message.
  Result<void> run();

  /// Ranks by position of the representative.
  [[nodiscard]] std::vector<Rank>& ranks() { return ranks_; }
  /// By position of the representative: how long other ranks waited for it in the second step. This
  /// is the sum, over the collectives and messages that it reached last, of the time from the first
  /// launch to its own.
  [[nodiscard]] const std::vector<std::int64_t>& waited_for() const { return waited_for_; }

 private:
  /// The pending or running collective of a group. There is at most one: on each rank, launches of
  /// a communicator run in order, and all ranks end a collective at once.
  struct Meeting {
    std::uint32_t arrived = 0;  ///< ranks of the group
    std::int64_t rate = 0;
  };

  /// A message of which one end was launched, or both.
  struct Post {
    std::uint32_t stream = 0;
    std::uint32_t message = 0;  ///< position in the launch
  };
  /// Messages from one rank to another: those of which one end waits, and the one that moves.
  struct Channel {
    std::deque<Post> sends;
    std::deque<Post> receives;
    bool moves = false;
    Int128 remaining = 0;      ///< of the front one, when its rate was set; 2^-20 ns at full speed
    std::int64_t rate_at = 0;  ///< ns
    std::int64_t rate = 0;
  };

  /// A rank that advanced beyond now_, as nothing can affect it before: what it did at its own time.
  struct Ahead {
    bool is = false;
    std::vector<std::uint32_t> arrived;
    std::vector<std::uint32_t> affected;
  };

  Result<void> step_ranks();
  Result<void> step(std::uint32_t i);
  Result<void> arrive(std::uint32_t group);
  Result<void> post(std::uint32_t rank);
  Result<void> begin_message(std::uint32_t channel);
  void end_message(std::uint32_t channel);
  void share_channel(std::uint32_t channel);
  [[nodiscard]] const Message& front(std::uint32_t channel, bool sends);
  void share();
  void share_link(std::uint32_t group);
  Result<void> pass_time();

  const RankPartition& partition_;
  std::int64_t now_ = 0;
  std::vector<Rank> ranks_;
  std::vector<Meeting> meetings_;                   // by group
  Timetable ends_;                                  // by rank: end of its first op
  std::vector<Channel> channels_;                   // as in the partition
  Timetable message_ends_;                          // by channel
  std::vector<std::vector<std::uint32_t>> moving_;  // by rank: channels whose message moves
  std::size_t unfinished_;                          // ranks in their first or second step
  std::vector<std::int64_t> waited_for_;

  // State of one round:
  std::vector<std::uint32_t> due_;       // ranks with an op that ends now
  std::vector<std::uint32_t> arrived_;   // groups whose launch is ready, once for each rank
  std::vector<std::uint32_t> affected_;  // groups sharing a link with one that began or ended
  Marked groups_;                        // the same without duplicates
  Marked touched_;                       // ranks whose next end may change
  std::vector<Ahead> ahead_;             // by rank
  std::vector<std::uint32_t> ended_;     // channels whose message ends now
};

}  // namespace mfsdp
