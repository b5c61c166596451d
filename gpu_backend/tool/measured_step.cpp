#include "gpu_backend/tool/measured_step.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>

#include "core/plan/index.hpp"
#include "sim/engine/op_names.hpp"

namespace mfsdp {
namespace {

using Span = std::pair<Nanos, Nanos>;

/// Time that at least one of the spans covers.
Nanos covered(std::vector<Span> spans) {
  std::ranges::sort(spans);
  Nanos sum;
  Nanos until;
  for (const auto& [begin, end] : spans) {
    if (end <= until) continue;
    sum += end - std::max(begin, until);
    until = end;
  }
  return sum;
}

/// The op's segment by name.
std::unordered_map<OpId, const Segment*> segments_of(const Plan& plan) {
  std::unordered_map<OpId, const Segment*> segments;
  for (const Segment& segment : plan.segments)
    for (const Op& op : segment.ops) segments.emplace(op.id, &segment);
  return segments;
}

}  // namespace

MeasuredStep measure_step(const Program& program, const Plan& plan,
                          const std::vector<OpTiming>& timings) {
  const auto segments = segments_of(plan);
  const IdIndex<StreamId> streams(program.streams);
  std::vector<const OpTiming*> ours;
  std::map<std::int64_t, Nanos> ends;  // of each step, its last op
  for (const OpTiming& timing : timings)
    if (takes_time(*timing.op->op) && segments.contains(timing.op->op->id)) {
      ours.push_back(&timing);
      Nanos& end = ends[timing.step];
      end = std::max(end, timing.end);
    }
  MeasuredStep measured;
  if (ours.empty()) return measured;
  const auto recorded =
      std::next(ends.begin(), ends.size() < 3 ? std::ssize(ends) - 1 : std::ssize(ends) - 2);
  const Nanos begin = recorded == ends.begin() ? std::ranges::min(ours, {}, &OpTiming::begin)->begin
                                               : std::prev(recorded)->second;
  const Nanos end = recorded->second;

  std::unordered_map<OpId, std::int64_t> instances;
  std::vector<Span> compute;
  std::vector<Span> communication;
  std::vector<Span> either;
  for (const OpTiming* timing : ours) {
    const Op& op = *timing->op->op;
    const StreamRole role = program.streams[streams[op.stream]].role;
    if (timing->step == recorded->first)
      measured.timeline.push_back({.op = op.id,
                                   .name = op.name,
                                   .stream = std::string(to_string(role)),
                                   .kind = std::string(kind_name(op)),
                                   .segment = segments.at(op.id)->name,
                                   .instance = instances[op.id]++,
                                   .start = timing->begin - begin,
                                   .end = timing->end - begin});
    if (timing->end <= begin || timing->begin >= end) continue;
    const Span span{std::max(timing->begin, begin) - begin, std::min(timing->end, end) - begin};
    if (role == StreamRole::compute) compute.push_back(span);
    if (op.kind() == OpKind::collective) communication.push_back(span);
    if (role == StreamRole::compute || op.kind() == OpKind::collective) either.push_back(span);
  }
  std::ranges::stable_sort(measured.timeline, {}, &OpTime::start);
  TimeSummary& time = measured.time;
  time.step = end - begin;
  time.compute = covered(compute);
  time.communication = covered(communication);
  time.exposed_communication = covered(either) - time.compute;
  time.idle = time.step - time.compute - time.exposed_communication;
  time.overlap_fraction = time.communication == Nanos(0)
                              ? 1.0
                              : 1.0 - static_cast<double>(time.exposed_communication.value) /
                                          static_cast<double>(time.communication.value);
  return measured;
}

std::vector<OpLaunch> launches_of(const Program& program, std::int64_t rank,
                                  const std::vector<OpTiming>& timings) {
  std::vector<OpLaunch> launches;
  launches.reserve(timings.size());
  for (const OpTiming& timing : timings) {
    OpLaunch& launch = launches.emplace_back();
    launch.op = timing.op->op->id;
    launch.rank = rank;
    launch.step = timing.step + 1;
    if (timing.stream) launch.stream = program.streams[*timing.stream].id;
    launch.drains = timing.drains;
    launch.issued = timing.issued;
    launch.begin = timing.begin;
    launch.end = timing.end;
  }
  return launches;
}

}  // namespace mfsdp
