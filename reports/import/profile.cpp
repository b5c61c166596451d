// Traces of PyTorch's profiler: the last whole step of the first device.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/formats/kineto.hpp"
#include "reports/import/foreign_run.hpp"

namespace mfsdp {
namespace {

using TimeSpan = std::pair<Nanos, Nanos>;

constexpr std::size_t kMostOps = 200'000;  ///< of a timeline

/// Time that at least one of the spans covers.
Nanos covered_time(std::vector<TimeSpan> spans) {
  std::ranges::sort(spans);
  Nanos sum;
  std::optional<Nanos> until;
  for (const auto& [begin, end] : spans) {
    if (until && end <= *until) continue;
    sum += end - (until ? std::max(begin, *until) : begin);
    until = end;
  }
  return sum;
}

struct ProfiledOps {
  std::vector<OpTime> ops;
  std::vector<TimeSpan> compute;
  std::vector<TimeSpan> communication;
};

/// From the begin of the device's last step mark but one to that of the last; without marks, all of
/// it.
TimeSpan window_of(const traces::Trace& trace, std::int32_t device) {
  std::vector<Nanos> begins;
  for (const traces::StepMark& mark : trace.steps)
    if (!mark.device) begins.push_back(mark.begin);
  std::ranges::sort(begins);
  if (begins.size() >= 2) return {begins[begins.size() - 2], begins.back()};
  std::optional<TimeSpan> all;
  const auto widen = [&](Nanos begin, Nanos end) {
    all = all ? TimeSpan{std::min(all->first, begin), std::max(all->second, end)}
              : TimeSpan{begin, end};
  };
  for (const auto& work : trace.work)
    if (work.device == device) widen(work.begin, work.end);
  for (const auto& call : trace.collectives)
    if (call.device == device) widen(call.begin, call.end);
  return all.value_or(TimeSpan{});
}

ProfiledOps ops_in(const traces::Trace& trace, std::int32_t device, const TimeSpan& window) {
  ProfiledOps found;
  const auto add = [&](Nanos begin, Nanos end, std::int32_t stream, std::uint32_t name,
                       std::string kind) {
    if (found.ops.size() >= kMostOps) return;
    found.ops.push_back({.op = OpId(found.ops.size()),
                         .name = trace.names.at(name),
                         .stream = fmt::format("stream {}", stream),
                         .kind = std::move(kind),
                         .segment = "step",
                         .instance = 0,
                         .start = begin - window.first,
                         .end = end - window.first});
  };
  const auto inside = [&](Nanos begin) { return begin >= window.first && begin < window.second; };
  // The step is its parts: what runs beyond its end counts up to there.
  const auto clipped = [&](Nanos begin, Nanos end) {
    return TimeSpan{begin, std::min(end, window.second)};
  };
  for (const auto& work : trace.work)
    if (work.device == device && inside(work.begin)) {
      const bool is_kernel = work.kind == traces::WorkKind::kernel;
      add(work.begin, work.end, work.stream, work.name, is_kernel ? "kernel" : "copy");
      if (is_kernel) found.compute.push_back(clipped(work.begin, work.end));
    }
  for (const auto& call : trace.collectives)
    if (call.device == device && inside(call.begin)) {
      add(call.begin, call.end, call.stream, call.name, std::string(to_string(call.op)));
      found.communication.push_back(clipped(call.begin, call.end));
    }
  std::ranges::stable_sort(found.ops, {}, &OpTime::start);
  return found;
}

}  // namespace

Result<ForeignRun> read_profile(std::string_view bytes, const std::string& where) {
  MFSDP_LET(trace, traces::parse_kineto(bytes, where));
  if (trace.work.empty() && trace.collectives.empty())
    return fail(where, "holds no work of a GPU: expected a trace with CUDA activities");
  const std::int32_t device =
      trace.work.empty() ? trace.collectives.front().device : trace.work.front().device;
  const TimeSpan window = window_of(trace, device);
  ProfiledOps found = ops_in(trace, device, window);
  std::vector<TimeSpan> either = found.compute;
  either.insert(either.end(), found.communication.begin(), found.communication.end());
  ForeignRun run{.engine = "pytorch", .format = "trace of PyTorch's profiler"};
  TimeSummary time;
  time.step = window.second - window.first;
  time.compute = covered_time(found.compute);
  time.communication = covered_time(found.communication);
  time.exposed_communication = covered_time(std::move(either)) - time.compute;
  time.idle = time.step - time.compute - time.exposed_communication;
  time.overlap_fraction = time.communication == Nanos(0)
                              ? 1.0
                              : 1.0 - static_cast<double>(time.exposed_communication.value) /
                                          static_cast<double>(time.communication.value);
  run.time = time;
  run.timeline = std::move(found.ops);
  run.gpus = trace.world_size;
  if (trace.rank) run.fact("rank", *trace.rank);
  if (trace.steps.size() < 2) run.fact("step_is", std::string("the whole trace: no step marks"));
  return run;
}

}  // namespace mfsdp
