#include "gpu_backend/cuda/event_ring.hpp"

#include <utility>
#include <variant>

#include "core/plan/index.hpp"
#include "core/plan/instances.hpp"
#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {
namespace {

/// By event: whether the host needs its time. Those after copies between host and device only.
std::vector<bool> events_with_time(const Program& program) {
  const IdIndex<EventId> events(program.events);
  const IdIndex<StreamId> streams(program.streams);
  std::vector<bool> has_time(program.events.size(), false);
  for (const Plan& plan : program.plans)
    for (const Op& op : ops_of(plan))
      if (const auto* record = std::get_if<Record>(&op.body)) {
        const auto stream = streams.find(op.stream);
        const auto event = events.find(record->event);
        if (!stream || !event) continue;  // PlanBinder reports it
        const StreamRole role = program.streams[*stream].role;
        if (role == StreamRole::h2d || role == StreamRole::d2h) has_time[*event] = true;
      }
  return has_time;
}

}  // namespace

Result<EventRing> EventRing::create(const Program& program) {
  EventRing made;
  const std::vector<bool> has_time = events_with_time(program);
  for (const std::size_t event : event_list(program)) made.has_time_.push_back(has_time[event]);
  for (const bool timed : made.has_time_)
    for (std::size_t turn = 0; turn < kTurns; ++turn) {
      MFSDP_LET(event, make_event(timed));
      made.events_.push_back(std::move(event));
    }
  made.latest_ = std::vector<LatestRecord>(made.events_.size());
  made.had_run_.resize(made.events_.size(), 0);
  return made;
}

Result<void> EventRing::record(const BoundOp& op, const BoundOp& work, std::int64_t step,
                               std::int64_t number, cudaStream_t stream) {
  MFSDP_TRY(check(cudaEventRecord(at(op.event, number), stream), "cudaEventRecord"));
  LatestRecord& latest = latest_[turn_of(op.event, number)];
  latest.work = &work;
  latest.step = step;
  latest.sequence = ++sequence_;
  latest.number = number;
  return {};
}

Result<void> EventRing::wait(const BoundOp& op, std::int64_t number, cudaStream_t stream) const {
  return check(cudaStreamWaitEvent(stream, at(op.event, number), 0), "cudaStreamWaitEvent");
}

std::optional<UnfinishedOp> EventRing::first_unfinished() const {
  const LatestRecord* first = nullptr;
  for (std::size_t e = 0; e < events_.size(); ++e) {
    const std::int64_t sequence = latest_[e].sequence;
    if (sequence == 0 || query_event(events_[e].get()) != cudaErrorNotReady) continue;
    if (first == nullptr || sequence < first->sequence) first = &latest_[e];
  }
  if (first == nullptr) return std::nullopt;
  return UnfinishedOp{.op = first->work, .step = first->step};
}

/// Reads the number first: a record that comes in between leaves a smaller number, which has also
/// run.
void EventRing::keep_what_has_run() {
  for (std::size_t e = 0; e < events_.size(); ++e) {
    const std::int64_t number = latest_[e].number;
    if (number > 0 && query_event(events_[e].get()) == cudaSuccess) had_run_[e] = number;
  }
}

}  // namespace mfsdp::cuda
