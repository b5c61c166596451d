#include "sim/simulator/engine.hpp"

#include <algorithm>
#include <numeric>

namespace mfsdp {
namespace {

std::vector<Rank> make_ranks(const RankPlan& common, const RankPartition& partition,
                             const MemoryLedger& memory, std::optional<std::size_t> kept) {
  std::vector<Rank> ranks;
  ranks.reserve(partition.representatives.size());
  for (std::size_t i = 0; i < partition.representatives.size(); ++i) {
    const Representative& one = partition.representatives[i];
    const KernelTimes kernels{.rank = one.rank,
                              .factor = one.kernel_time,
                              .jitter = partition.jitter,
                              .seed = partition.seed};
    ranks.emplace_back(common, partition.group_of[i], kernels, memory, kept == i);
  }
  return ranks;
}

}  // namespace

Engine::Engine(const RankPlan& common, const RankPartition& partition, const MemoryLedger& memory,
               std::optional<std::size_t> kept)
    : partition_(partition),
      ranks_(make_ranks(common, partition, memory, kept)),
      meetings_(partition.groups.size()),
      ends_(ranks_.size()),
      unfinished_(ranks_.size()),
      waited_for_(ranks_.size()),
      due_(ranks_.size()),
      groups_(meetings_.size()),
      touched_(ranks_.size()) {
  std::iota(due_.begin(), due_.end(), 0);
}

Result<void> Engine::run() {
  while (true) {
    MFSDP_TRY(step_ranks());
    if (unfinished_ == 0) return {};
    for (const std::uint32_t group : arrived_) arrive(group);
    arrived_.clear();
    share();
    MFSDP_TRY(pass_time());
  }
}

/// A single rank advances without returning to the engine.
Result<void> Engine::step_ranks() {
  const std::int64_t until = ranks_.size() == 1 ? kNever : now_;
  for (const std::uint32_t i : due_) {
    Rank& rank = ranks_[i];
    const bool finished = rank.finished();
    MFSDP_TRY(rank.run(now_, until, arrived_, affected_));
    if (rank.finished() && !finished) --unfinished_;
  }
  now_ = ranks_[due_.front()].now();
  return {};
}

/// Another rank of the group has reached its collective, which begins when all have.
void Engine::arrive(std::uint32_t group) {
  const std::vector<std::uint32_t>& members = partition_.groups[group];
  Meeting& meeting = meetings_[group];
  if (++meeting.arrived < members.size()) return;
  meeting = {};
  std::int64_t first = now_;
  for (const std::uint32_t i : members) {
    first = std::min(first, ranks_[i].collective(group).came);
    ranks_[i].meet(group, now_, affected_);
  }
  if (first == now_) return;
  for (const std::uint32_t i : members) {
    const Running& op = ranks_[i].collective(group);
    if (op.came == now_ && op.step == kReported) waited_for_[i] += now_ - first;
  }
}

/// Updates all rates that may have changed, and the times at which the ranks' next ops end.
void Engine::share() {
  for (const std::uint32_t group : affected_) groups_.add(group);
  affected_.clear();
  for (const std::uint32_t group : groups_.list()) share_link(group);
  groups_.clear();
  for (const std::uint32_t i : due_) touched_.add(i);
  for (const std::uint32_t i : touched_.list()) ends_.set(i, ranks_[i].share());
  touched_.clear();
}

/// Collectives share a link in proportion to their demand, and concurrent kernels slow them down.
/// The slowest rank determines the rate of the group.
void Engine::share_link(std::uint32_t group) {
  const std::vector<std::uint32_t>& members = partition_.groups[group];
  const Launch& launch = *ranks_[members.front()].collective(group).launch;
  std::int64_t slow = kOne;  // slowdown relative to the time alone
  for (const std::uint32_t i : members) {
    slow = std::max(slow, ranks_[i].demand(launch.link));
    slow = std::max(slow, ranks_[i].drag(launch));
  }
  const std::int64_t rate = std::max<std::int64_t>(kOne * kOne / slow, 1);
  if (rate == meetings_[group].rate) return;
  meetings_[group].rate = rate;
  for (const std::uint32_t i : members) {
    ranks_[i].set_rate(group, now_, rate);
    touched_.add(i);
  }
}

/// Advances to the next end of an op.
Result<void> Engine::pass_time() {
  if (ends_.first() == kNever) {
    if (std::ranges::any_of(ranks_, &Rank::runs)) throw OverflowError("time exceeds 2^63 - 1 ns");
    const auto stuck = std::ranges::find(ranks_, false, &Rank::finished);
    return tl::unexpected(stuck->stalled());
  }
  now_ = ends_.first();
  ends_.find_first(due_);
  return {};
}

}  // namespace mfsdp
