#include "gpu_backend/cuda/op_timer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {

bool OpTimer::times(const Op& op) {
  return op.kind() == OpKind::kernel || op.kind() == OpKind::collective ||
         op.kind() == OpKind::copy || op.kind() == OpKind::host_wait;
}

/// Two events per op: with very many ops they would take as much time and memory as a small model.
Result<void> OpTimer::make_room(const BoundPlan& plan, std::vector<std::string>& notes) {
  constexpr std::int64_t kMost = 300'000;
  std::int64_t ops = 0;
  for (const BoundList& list : plan.lists) {
    const auto timed = std::ranges::count_if(
        list.list, [&](const ListedOp& listed) { return times(*list.first_turn(listed).op); });
    ops = checked_add(ops, checked_mul(timed, list.runs));
  }
  const std::int64_t all = checked_mul(ops, steps_.count);
  if (all > kMost) {
    steps_.from.reset();
    notes.push_back(fmt::format("ops are not timed: {} launches are more than {}", all, kMost));
    return {};
  }
  room_ += static_cast<std::size_t>(all);
  timed_.reserve(room_);
  open_.reserve(room_);
  events_.reserve(2 * room_);
  while (events_.size() < 2 * room_) {
    MFSDP_LET(event, make_event(true));
    events_.push_back(std::move(event));
  }
  return {};
}

Result<void> OpTimer::run(const BoundOp& op, std::int64_t step, cudaStream_t stream,
                          const Launch& launch) {
  const OpKind kind = op.op->kind();
  if (times(*op.op)) {
    MFSDP_TRY(begin(op, step, stream));
    MFSDP_TRY(launch());
    return grouped_ ? Result<void>() : end(stream);
  }
  if (kind == OpKind::group_begin) {
    grouped_ = true;
    ++groups_;
  }
  MFSDP_TRY(launch());
  if (kind != OpKind::group_end) return {};
  grouped_ = false;
  return end(stream);
}

Result<void> OpTimer::begin(const BoundOp& op, std::int64_t step, cudaStream_t stream) {
  if (!has_room()) return {};
  Timed& timed = timed_.emplace_back();
  timed.timing.op = &op;
  timed.timing.step = step;
  timed.timing.stream = op.stream;
  timed.timing.drains = drains_;
  timed.timing.issued = host_now();
  timed.events = used_;
  timed.group = grouped_ ? groups_ : 0;
  used_ += 2;
  open_.push_back(timed_.size() - 1);
  return check(cudaEventRecord(events_[*timed.events].get(), stream), "cudaEventRecord");
}

/// Records the end of every open op.
Result<void> OpTimer::end(cudaStream_t stream) {
  for (const std::size_t i : open_)
    MFSDP_TRY(
        check(cudaEventRecord(events_[*timed_[i].events + 1].get(), stream), "cudaEventRecord"));
  open_.clear();
  return {};
}

void OpTimer::add_host_wait(const BoundOp& op, std::int64_t step, Nanos begin, Nanos end) {
  if (!has_room()) return;
  OpTiming& timing = timed_.emplace_back().timing;
  timing.op = &op;
  timing.step = step;
  timing.drains = drains_;
  timing.issued = timing.begin = begin;
  timing.end = end;
}

/// A collective begins when the earlier ones on its communicator have ended, on any stream. Sends and
/// receives of a group run together.
Result<std::vector<OpTiming>> OpTimer::take(const DeviceClock& clock) {
  struct Latest {
    Nanos begin;
    Nanos end;
    std::int64_t group = 0;
  };
  std::vector<OpTiming> timings;
  std::unordered_map<std::size_t, Latest> communicators;
  for (Timed& timed : timed_) {
    OpTiming& timing = timed.timing;
    if (timed.events) {
      MFSDP_LET(begin, clock.time_of(events_[*timed.events].get()));
      MFSDP_LET(end, clock.time_of(events_[*timed.events + 1].get()));
      timing.begin = begin;
      timing.end = std::max(begin, end);
      if (timing.op->op->kind() == OpKind::collective) {
        Latest& before = communicators[timing.op->communicator];
        const CollectiveKind kind = std::get<Collective>(timing.op->op->body).kind;
        if (is_point_to_point(kind) && timed.group != 0 && timed.group == before.group) {
          timing.begin = before.begin;
          timing.end = before.end;
        } else {
          timing.begin = std::min(std::max(timing.begin, before.end), timing.end);
        }
        before = {.begin = timing.begin, .end = timing.end, .group = timed.group};
      }
    }
    timings.push_back(timing);
  }
  timed_.clear();
  used_ = 0;
  return timings;
}

}  // namespace mfsdp::cuda
