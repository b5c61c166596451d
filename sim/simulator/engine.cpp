#include "sim/simulator/engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace mfsdp {
namespace {

std::vector<Rank> make_ranks(std::span<const RankPlan> plans, const RankPartition& partition,
                             std::span<const std::size_t> kept) {
  std::vector<Rank> ranks;
  ranks.reserve(partition.representatives.size());
  for (std::size_t i = 0; i < partition.representatives.size(); ++i) {
    const Representative& one = partition.representatives[i];
    const KernelTimes kernels{.rank = one.rank,
                              .factor = one.kernel_time,
                              .jitter = partition.jitter,
                              .seed = partition.seed};
    const bool keeps_times = std::ranges::find(kept, i) != kept.end();
    ranks.emplace_back(plans[one.of_class], partition.group_of[i], kernels, keeps_times);
  }
  return ranks;
}

MovingMessage end_of(const Message& message, bool sends) {
  return {.link = message.link, .sends = sends, .demand = message.demand};
}

}  // namespace

Engine::Engine(std::span<const RankPlan> plans, const RankPartition& partition,
               std::span<const std::size_t> kept)
    : partition_(partition),
      ranks_(make_ranks(plans, partition, kept)),
      meetings_(partition.groups.size()),
      ends_(ranks_.size()),
      channels_(partition.channels.size()),
      message_ends_(channels_.size()),
      moving_(ranks_.size()),
      unfinished_(ranks_.size()),
      waited_for_(ranks_.size()),
      due_(ranks_.size()),
      groups_(meetings_.size()),
      touched_(ranks_.size()),
      ahead_(ranks_.size()) {
  std::iota(due_.begin(), due_.end(), 0);
}

Result<void> Engine::run() {
  while (true) {
    MFSDP_TRY(step_ranks());
    if (unfinished_ == 0) return {};
    for (const std::uint32_t group : arrived_) MFSDP_TRY(arrive(group));
    arrived_.clear();
    if (!channels_.empty())
      for (const std::uint32_t i : due_)
        if (!ahead_[i].is) MFSDP_TRY(post(i));
    share();
    MFSDP_TRY(pass_time());
  }
}

Result<void> Engine::step_ranks() {
  for (const std::uint32_t i : due_) MFSDP_TRY(step(i));
  if (ranks_.size() == 1) now_ = ranks_[0].now();
  return {};
}

/// Advances a rank whose next op ends now. A single rank advances without returning to the engine.
Result<void> Engine::step(std::uint32_t i) {
  Rank& rank = ranks_[i];
  Ahead& ahead = ahead_[i];
  if (!ahead.is) {
    const bool finished = rank.finished();
    const bool is_free = ranks_.size() == 1 || rank.is_independent();
    MFSDP_TRY(rank.run(now_, is_free ? kNever : now_, ahead.arrived, ahead.affected));
    if (rank.finished() && !finished) --unfinished_;
    ahead.is = ranks_.size() > 1 && rank.now() > now_;
    if (ahead.is) return {};
  }
  ahead.is = false;
  arrived_.insert(arrived_.end(), ahead.arrived.begin(), ahead.arrived.end());
  affected_.insert(affected_.end(), ahead.affected.begin(), ahead.affected.end());
  ahead.arrived.clear();
  ahead.affected.clear();
  return {};
}

/// Another rank of the group has reached its collective, which begins when all have.
Result<void> Engine::arrive(std::uint32_t group) {
  const std::vector<std::uint32_t>& members = partition_.groups[group];
  Meeting& meeting = meetings_[group];
  if (++meeting.arrived < members.size()) return {};
  meeting = {};
  std::int64_t first = now_;
  const Bytes bytes = ranks_[members.front()].collective(group).launch->bytes;
  Int128 work = 0;
  for (const std::uint32_t i : members) {
    const Running& op = ranks_[i].collective(group);
    if (op.launch->bytes != bytes)
      return tl::unexpected(
          ranks_[i].at_fault(op, "other ranks launch a collective of another size with it"));
    first = std::min(first, op.came);
    work = std::max(work, op.remaining);  // classes may have different clocks, and so prices
  }
  for (const std::uint32_t i : members) ranks_[i].meet(group, work, now_, affected_);
  if (first == now_) return {};
  for (const std::uint32_t i : members) {
    const Running& op = ranks_[i].collective(group);
    if (op.came == now_ && op.step == kReported) waited_for_[i] += now_ - first;
  }
  return {};
}

/// Launches of the rank's sends and receives are ready.
Result<void> Engine::post(std::uint32_t rank) {
  for (const std::uint32_t stream : ranks_[rank].posted()) {
    const Launch& launch = *ranks_[rank].on_stream(stream).launch;
    for (std::uint32_t m = 0; m < launch.messages.size(); ++m) {
      const std::uint32_t channel = partition_.channel_of[rank][launch.messages[m].channel];
      const bool sends = partition_.channels[channel].sender == rank;
      (sends ? channels_[channel].sends : channels_[channel].receives).push_back({stream, m});
      MFSDP_TRY(begin_message(channel));
    }
  }
  ranks_[rank].posted().clear();
  return {};
}

const Message& Engine::front(std::uint32_t channel, bool sends) {
  const RankChannel& ends = partition_.channels[channel];
  const Post& post = sends ? channels_[channel].sends.front() : channels_[channel].receives.front();
  Rank& rank = ranks_[sends ? ends.sender : ends.receiver];
  return rank.on_stream(post.stream).launch->messages[post.message];
}

/// Begins the channel's next message if both of its ends are there and none moves.
Result<void> Engine::begin_message(std::uint32_t channel) {
  Channel& one = channels_[channel];
  if (one.moves || one.sends.empty() || one.receives.empty()) return {};
  const RankChannel& ends = partition_.channels[channel];
  const Message& sent = front(channel, true);
  const Running& from = ranks_[ends.sender].on_stream(one.sends.front().stream);
  const Running& to = ranks_[ends.receiver].on_stream(one.receives.front().stream);
  if (sent.bytes != front(channel, false).bytes)
    return tl::unexpected(ranks_[ends.receiver].at_fault(
        to, fmt::format("it receives {} bytes of a message of {} bytes",
                        front(channel, false).bytes.value, sent.bytes.value)));
  const std::int64_t waited = std::abs(from.came - to.came);
  const bool sender_is_last = from.came > to.came;
  if ((sender_is_last ? from : to).step == kReported)
    waited_for_[sender_is_last ? ends.sender : ends.receiver] += waited;
  one.moves = true;
  one.remaining = static_cast<Int128>(sent.duration) * kOne;
  one.rate_at = now_;
  one.rate = 0;
  ranks_[ends.sender].begin_message(one.sends.front().stream, end_of(sent, true), now_, affected_);
  ranks_[ends.receiver].begin_message(one.receives.front().stream, end_of(sent, false), now_,
                                      affected_);
  for (const std::uint32_t rank : {ends.sender, ends.receiver}) {
    moving_[rank].push_back(channel);
    touched_.add(rank);
  }
  return {};
}

void Engine::end_message(std::uint32_t channel) {
  Channel& one = channels_[channel];
  const RankChannel& ends = partition_.channels[channel];
  const Message sent = front(channel, true);
  ranks_[ends.sender].end_message(one.sends.front().stream, end_of(sent, true), now_, affected_);
  ranks_[ends.receiver].end_message(one.receives.front().stream, end_of(sent, false), now_,
                                    affected_);
  one.sends.pop_front();
  one.receives.pop_front();
  one.moves = false;
  message_ends_.set(channel, kNever);
  for (const std::uint32_t rank : {ends.sender, ends.receiver}) {
    std::erase(moving_[rank], channel);
    if (std::ranges::find(due_, rank) == due_.end()) due_.push_back(rank);
  }
}

/// Updates all rates that may have changed, and the times at which the ranks' next ops end.
void Engine::share() {
  for (const std::uint32_t group : affected_) groups_.add(group);
  affected_.clear();
  for (const std::uint32_t group : groups_.list()) share_link(group);
  groups_.clear();
  for (const std::uint32_t i : due_) touched_.add(i);
  for (const std::uint32_t i : touched_.list()) {
    if (ahead_[i].is) {
      ends_.set(i, ranks_[i].now());
      continue;
    }
    for (const std::uint32_t channel : moving_[i]) share_channel(channel);
    ends_.set(i, ranks_[i].share());
  }
  touched_.clear();
}

/// Collectives share a link in proportion to their demand, and concurrent kernels slow them down.
/// The slowest rank determines the rate of the group.
void Engine::share_link(std::uint32_t group) {
  const std::vector<std::uint32_t>& members = partition_.groups[group];
  // A message beside it ended, or began, at the time at which the collective ended.
  if (!ranks_[members.front()].runs_group(group)) return;
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

/// A message shares its link with others of its direction on both of its ranks, and concurrent
/// kernels slow it down.
void Engine::share_channel(std::uint32_t channel) {
  Channel& one = channels_[channel];
  const RankChannel& ends = partition_.channels[channel];
  const Message& sent = front(channel, true);
  const Launch& launch = *ranks_[ends.sender].on_stream(one.sends.front().stream).launch;
  std::int64_t slow = kOne;
  for (const bool sends : {true, false}) {
    Rank& rank = ranks_[sends ? ends.sender : ends.receiver];
    slow = std::max({slow, rank.demand(end_of(sent, sends)), rank.drag(launch)});
  }
  const std::int64_t rate = std::max<std::int64_t>(kOne * kOne / slow, 1);
  if (rate == one.rate) return;
  one.remaining -= static_cast<Int128>(now_ - one.rate_at) * one.rate;
  one.rate_at = now_;
  one.rate = rate;
  const std::int64_t left = time_for(one.remaining, rate);
  message_ends_.set(channel, left < kNever - now_ ? now_ + left : kNever);
}

/// Advances to the next end of an op or message.
Result<void> Engine::pass_time() {
  const std::int64_t next = std::min(ends_.first(), message_ends_.first());
  if (next == kNever) {
    if (std::ranges::any_of(ranks_, &Rank::runs)) throw OverflowError("time exceeds 2^63 - 1 ns");
    const auto stuck = std::ranges::find(ranks_, false, &Rank::finished);
    return tl::unexpected(stuck->stalled());
  }
  now_ = next;
  due_.clear();
  if (ends_.first() == next) ends_.find_first(due_);
  if (message_ends_.first() != next) return {};
  message_ends_.find_first(ended_);
  for (const std::uint32_t channel : ended_) end_message(channel);
  for (const std::uint32_t channel : ended_) MFSDP_TRY(begin_message(channel));
  std::ranges::sort(due_);
  return {};
}

}  // namespace mfsdp
