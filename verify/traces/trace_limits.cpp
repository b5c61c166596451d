#include "verify/traces/trace_limits.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "verify/traces/stream_waits.hpp"

namespace mfsdp::traces {
namespace {

std::int64_t count_collectives(const Trace& trace, auto predicate) {
  return std::ranges::count_if(trace.collectives, predicate);
}

void add_what_is_missing(std::vector<std::string>& list, const Trace& trace,
                         const TraceReport& report) {
  const auto calls = std::ssize(trace.collectives);
  const std::int64_t unnamed =
      count_collectives(trace, [](const CollectiveCall& call) { return call.group == 0; });
  const std::int64_t sizeless = count_collectives(trace, [](const CollectiveCall& call) {
    return call.in_elements == 0 && call.out_elements == 0;
  });
  const std::int64_t launchless =
      count_collectives(trace, [](const CollectiveCall& call) { return !call.launched; });
  const std::int64_t peer_copies = std::ranges::count_if(trace.work, [&](const GpuWork& work) {
    return work.kind == WorkKind::copy && trace.names[work.name].find("PtoP") != std::string::npos;
  });
  if (calls == 0)
    list.emplace_back("There is no NCCL kernel: one GPU, or collectives that are not NCCL's.");
  const WaitsKnown waits = waits_known(trace);
  if (waits == WaitsKnown::dropped)
    list.emplace_back("Which event a stream waited for is not recorded, though the waits are.");
  if (waits == WaitsKnown::absent)
    list.push_back(fmt::format(
        "Which stream waited for which event is not recorded ({} event records and {} stream waits "
        "of the host are): profile with _ExperimentalConfig(enable_cuda_sync_events=True).",
        trace.event_records, trace.stream_waits));
  if (launchless > 0)
    list.push_back(fmt::format(
        "{} of {} collectives have no launch in the trace: whether they were queued, or launched "
        "late, is unknown for them.",
        launchless, calls));
  if (unnamed > 0)
    list.push_back(fmt::format(
        "{} of {} collectives name no process group: their communicators are told apart by stream "
        "only.",
        unnamed, calls));
  if (sizeless > 0)
    list.push_back(fmt::format("{} of {} collectives state no size.", sizeless, calls));
  if (peer_copies > 0)
    list.push_back(fmt::format(
        "{} copies between GPUs may be collectives that a copy engine does, which have no kernel: "
        "they count as copies.",
        peer_copies));
  if (trace.graph_launches > 0)
    list.push_back(
        fmt::format("{} launches of CUDA graphs: all kernels of a graph share one launch.",
                    trace.graph_launches));
  if (trace.steps.empty()) {
    list.emplace_back("There are no steps: call the profiler's step() once a step.");
  } else if (std::ranges::any_of(report.devices, [](const DeviceReport& device) {
               return !device.steps_of_device;
             })) {
    list.emplace_back(
        "Steps are bounded by the host's annotations: work that a device had not begun when the "
        "host went on counts to the next step.");
  }
  if (!trace.rank) list.emplace_back("The rank is not written (distributedInfo).");
}

}  // namespace

std::vector<std::string> limits_of(const Trace& trace, const TraceReport& report) {
  std::vector<std::string> list;
  add_what_is_missing(list, trace, report);
  list.emplace_back(
      "A trace is one order that happened: a wait that is missing may not have shown in it.");
  list.emplace_back(
      "Memory ranges are not recorded: races, lifetimes and reused buffers cannot be checked.");
  list.emplace_back(
      "Which kernel reads what a collective brings is not recorded: a gather counts as late only "
      "where compute stood still until its end.");
  list.emplace_back(
      "An NCCL kernel also runs while it waits for other ranks: time on the wire and waiting look "
      "the same, and clocks of different ranks are not aligned.");
  list.emplace_back(
      "Values are not recorded: scales, missing gradients and stale weights cannot be seen.");
  return list;
}

}  // namespace mfsdp::traces
