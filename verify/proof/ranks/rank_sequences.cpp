#include "verify/proof/ranks/rank_sequences.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "core/plan/mesh.hpp"
#include "verify/proof/ranks/class_sequences.hpp"
#include "verify/proof/ranks/rank_pairs.hpp"

namespace mfsdp {

using every_rank::PairsCompared;
using every_rank::Ranks;
using every_rank::Sequence;
using every_rank::Sequencer;
using every_rank::Sequences;

namespace {

// ---- what is issued ----------------------------------------------------------------------------

/// Compares the collectives of each member of a communicator with those of its first member.
/// Reports the first difference of two classes on each communicator.
class SequenceCheck {
 public:
  SequenceCheck(const Ranks& ranks, FindingList& findings) : ranks_(ranks), findings_(findings) {}

  std::int64_t run() {
    std::int64_t compared = 0;
    for (std::size_t k = 0; k < ranks_.members.size(); ++k) {
      if (ranks_.pairs[k] != 0) continue;  // rank_pairs.hpp
      const Members& members = ranks_.members[k];
      for (std::size_t c = 0; c < members.count(); ++c) {
        for (const std::size_t rank : members.ranks(c)) {
          compare(k, members.ranks(c).front(), rank);
          compared += std::ssize(ranks_.sequence(rank, k).meetings);
        }
      }
    }
    return compared;
  }

 private:
  void compare(std::size_t k, std::size_t first, std::size_t rank) {
    const std::vector<std::uint32_t>& expected = ranks_.sequence(first, k).signatures;
    const std::vector<std::uint32_t>& issued = ranks_.sequence(rank, k).signatures;
    if (expected == issued) return;
    const auto classes = std::minmax(ranks_.class_of[first], ranks_.class_of[rank]);
    if (!reported_.emplace(k, classes.first, classes.second).second) return;
    const auto at =
        static_cast<std::size_t>(std::ranges::mismatch(expected, issued).in1 - expected.begin());
    Finding finding;
    finding.rule = "MF201";
    const std::string left = describe(finding, k, first, at);
    const std::string right = describe(finding, k, rank, at);
    finding.message =
        fmt::format("collective {} of communicator {} differs: {}, {}", at,
                    ranks_.plans.front()->program->communicators[k].id.value, left, right);
    finding.interleaving = finding.places;
    findings_.add(std::move(finding));
  }

  [[nodiscard]] std::string describe(Finding& finding, std::size_t k, std::size_t rank,
                                     std::size_t n) const {
    const Sequence& sequence = ranks_.sequence(rank, k);
    if (n >= sequence.meetings.size()) return fmt::format("rank {} issues no further one", rank);
    finding.places.push_back(ranks_.place(rank, k, n));
    const Signature signature =
        signature_of(*ranks_.plans[ranks_.class_of[rank]], sequence.meetings[n]);
    return fmt::format("rank {} issues {} ({})", rank, to_text(finding.places.back()),
                       to_text(signature));
  }

  const Ranks& ranks_;
  FindingList& findings_;
  std::set<std::tuple<std::size_t, std::uint32_t, std::uint32_t>> reported_;
};

// ---- whether all come to the end ---------------------------------------------------------------

/// Runs all ranks concurrently, each as far as it can go.
class Execution {
 public:
  explicit Execution(const Ranks& ranks)
      : ranks_(ranks),
        kinds_(ranks.members.size()),
        ended_(ranks.class_of.size() * kinds_, 0),
        arrived_(ended_.size(), 0) {
    for (std::size_t k = 0; k < kinds_; ++k) {
      first_.push_back(missing_.size());
      for (std::size_t c = 0; c < ranks_.members[k].count(); ++c)
        missing_.push_back(members_left(k, c));
    }
  }

  void run() {
    for (std::size_t rank = 0; rank < ranks_.class_of.size(); ++rank)
      for (std::size_t k = 0; k < kinds_; ++k) try_to_arrive(rank, k);
    while (!complete_.empty() || !to_try_.empty()) {
      if (to_try_.empty()) {
        const auto [k, communicator] = complete_.back();
        complete_.pop_back();
        end(k, communicator);
      } else {
        const Next next = to_try_.back();
        to_try_.pop_back();
        try_to_end_launch(next.rank, next.k);
      }
    }
  }

  /// Collectives that wait for each other, in their order, or nothing where all ranks are done.
  [[nodiscard]] std::vector<Place> find_cycle() const {
    for (std::size_t rank = 0; rank < ranks_.class_of.size(); ++rank)
      for (std::size_t k = 0; k < kinds_; ++k)
        if (!is_done(rank, k)) return cycle_from({rank, k});
    return {};
  }

 private:
  /// A rank's next collective of a communicator.
  struct Next {
    std::size_t rank = 0;
    std::size_t k = 0;

    friend auto operator<=>(const Next&, const Next&) = default;
  };

  [[nodiscard]] std::uint32_t ended(std::size_t rank, std::size_t k) const {
    return ended_[rank * kinds_ + k];
  }
  [[nodiscard]] bool is_done(std::size_t rank, std::size_t k) const {
    return ended(rank, k) >= ranks_.sequence(rank, k).meetings.size();
  }
  /// The first communicator of which too few have ended for a rank's next one of k, or none.
  [[nodiscard]] std::size_t obstacle(std::size_t rank, std::size_t k) const {
    const std::uint32_t* needs =
        &ranks_.sequence(rank, k).needs[std::size_t{ended(rank, k)} * kinds_];
    std::size_t j = 0;
    while (j < kinds_ && needs[j] <= ended(rank, j)) ++j;
    return j;
  }

  void try_to_arrive(std::size_t rank, std::size_t k) {
    if (arrived_[rank * kinds_ + k] != 0 || is_done(rank, k) || obstacle(rank, k) < kinds_) return;
    arrived_[rank * kinds_ + k] = 1;
    if (ranks_.pairs[k] != 0) {
      to_try_.push_back({.rank = rank, .k = k});
      for_each_end(rank, k, [&](std::size_t other, std::uint32_t) {
        to_try_.push_back({.rank = other, .k = k});
        return true;
      });
      return;
    }
    const std::size_t communicator = ranks_.members[k].of(rank);
    if (--missing_[first_[k] + communicator] == 0) complete_.emplace_back(k, communicator);
  }

  /// The other ends of a rank's next launch of sends and recvs, until `visit` returns false.
  bool for_each_end(std::size_t rank, std::size_t k, auto visit) const {
    const std::size_t first = ended(rank, k);
    for (std::size_t n = first; n < ranks_.sequence(rank, k).launch_ends[first]; ++n) {
      const auto [other, meeting] = ranks_.other_end(rank, k, n);
      if (!visit(other, meeting)) return false;
    }
    return true;
  }
  /// Whether a rank has come to that meeting.
  [[nodiscard]] bool has_come(std::size_t rank, std::size_t k, std::uint32_t meeting) const {
    const std::uint32_t done = ended(rank, k);
    if (meeting < done) return true;
    return arrived_[rank * kinds_ + k] != 0 && meeting < ranks_.sequence(rank, k).launch_ends[done];
  }
  /// A launch ends when each peer has come to its end of it.
  void try_to_end_launch(std::size_t rank, std::size_t k) {
    if (arrived_[rank * kinds_ + k] == 0) return;
    const bool complete = for_each_end(rank, k, [&](std::size_t other, std::uint32_t meeting) {
      return has_come(other, k, meeting);
    });
    if (!complete) return;
    ended_[rank * kinds_ + k] = ranks_.sequence(rank, k).launch_ends[ended(rank, k)];
    arrived_[rank * kinds_ + k] = 0;
    for (std::size_t j = 0; j < kinds_; ++j) try_to_arrive(rank, j);
  }

  /// Members that still have a collective: all of them or none, or there is a finding already.
  [[nodiscard]] std::int64_t members_left(std::size_t k, std::size_t communicator) const {
    return std::ranges::count_if(ranks_.members[k].ranks(communicator),
                                 [&](std::uint32_t rank) { return !is_done(rank, k); });
  }

  void end(std::size_t k, std::size_t communicator) {
    const std::span<const std::uint32_t> members = ranks_.members[k].ranks(communicator);
    std::int64_t& missing = missing_[first_[k] + communicator];
    for (const std::size_t rank : members) {
      if (is_done(rank, k)) continue;
      ++ended_[rank * kinds_ + k];
      arrived_[rank * kinds_ + k] = 0;
      if (!is_done(rank, k)) ++missing;
    }
    for (const std::size_t rank : members) {
      for (std::size_t j = 0; j < kinds_; ++j) try_to_arrive(rank, j);
    }
  }

  /// The cause that a rank's next collective waits: one of its own, or the same one of a member that
  /// has not begun it.
  [[nodiscard]] Next cause_of(const Next& next) const {
    if (arrived_[next.rank * kinds_ + next.k] == 0)
      return {.rank = next.rank, .k = obstacle(next.rank, next.k)};
    if (ranks_.pairs[next.k] != 0) {
      Next cause = next;
      for_each_end(next.rank, next.k, [&](std::size_t other, std::uint32_t meeting) {
        if (has_come(other, next.k, meeting)) return true;
        cause.rank = other;
        return false;
      });
      return cause;
    }
    const Members& members = ranks_.members[next.k];
    for (const std::size_t rank : members.ranks(members.of(next.rank))) {
      if (!is_done(rank, next.k) && arrived_[rank * kinds_ + next.k] == 0)
        return {.rank = rank, .k = next.k};
    }
    return next;  // not reached: a collective that all have come to ends
  }

  [[nodiscard]] std::vector<Place> cycle_from(Next next) const {
    std::set<Next> seen;
    while (seen.insert(next).second) next = cause_of(next);
    std::vector<Place> cycle;
    const Next first = next;
    do {
      // Where a rank waits for a member, that member's collective stands for both.
      if (arrived_[next.rank * kinds_ + next.k] == 0 || ranks_.pairs[next.k] != 0)
        cycle.push_back(ranks_.place(next.rank, next.k, ended(next.rank, next.k)));
      next = cause_of(next);
    } while (next != first);
    std::ranges::reverse(cycle);
    return cycle;
  }

  const Ranks& ranks_;
  std::size_t kinds_;                  // of communicators: how many a rank is in
  std::vector<std::uint32_t> ended_;   // by rank and kind: collectives
  std::vector<char> arrived_;          // by rank and kind: has come to its next collective
  std::vector<std::size_t> first_;     // by kind: its first communicator in missing_
  std::vector<std::int64_t> missing_;  // by communicator: members that have not come
  std::vector<std::pair<std::size_t, std::size_t>> complete_;  // kind and communicator
  std::vector<Next> to_try_;  // launches of sends and recvs that may have come to their end
};

std::vector<Place> find_cycle(const Ranks& ranks) {
  Execution execution(ranks);
  execution.run();
  return execution.find_cycle();
}

void find_deadlock(const Ranks& ranks, FindingList& findings) {
  // Where all come to the end with launches in order, they do without it too.
  Ranks in_order = ranks;
  for (std::size_t c = 0; c < ranks.plans.size(); ++c)
    add_launch_order(*ranks.plans[c], in_order.sequences[c]);
  const std::vector<Place> with_order = find_cycle(in_order);
  if (with_order.empty()) return;
  std::vector<Place> cycle = find_cycle(ranks);
  findings.add(cycle.empty() ? deadlock_finding(true, with_order)
                             : deadlock_finding(false, std::move(cycle)));
}

}  // namespace

std::int64_t check_every_rank(std::span<const UnrolledPlan* const> classes,
                              std::span<const std::uint32_t> class_of, FindingList& findings) {
  const Program& program = *classes.front()->program;
  Ranks ranks{.plans = classes,
              .class_of = class_of,
              .mesh = program.config.mesh,
              .pairs = std::vector<char>(program.communicators.size(), 0)};
  for (const Communicator& communicator : program.communicators)
    ranks.members.emplace_back(Membership(communicator.axes, ranks.mesh));
  Sequencer sequencer(program.communicators.size());
  for (const UnrolledPlan* unrolled : classes)
    ranks.sequences.push_back(sequencer.sequences_of(*unrolled));
  for (const Sequences& sequences : ranks.sequences)
    for (std::size_t k = 0; k < sequences.size(); ++k)
      if (!sequences[k].channels.empty()) ranks.pairs[k] = 1;
  const std::int64_t compared = SequenceCheck(ranks, findings).run();
  const PairsCompared pairs = compare_pairs(ranks, findings);
  if (pairs.all_paired) find_deadlock(ranks, findings);
  return compared + pairs.meetings;
}

}  // namespace mfsdp
