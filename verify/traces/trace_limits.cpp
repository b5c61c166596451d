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
    list.emplace_back("Stream waits are recorded, but not the events that they wait for.");
  if (waits == WaitsKnown::absent)
    list.push_back(
        fmt::format("The host's {} event records and {} stream waits are recorded without their "
                    "events: profile "
                    "with _ExperimentalConfig(enable_cuda_sync_events=True).",
                    trace.event_records, trace.stream_waits));
  if (launchless > 0)
    list.push_back(fmt::format(
        "{} of {} collectives have no launch in the trace: it is unknown whether they were queued "
        "or launched late.",
        launchless, calls));
  if (unnamed > 0)
    list.push_back(fmt::format(
        "{} of {} collectives name no process group: only their streams distinguish their "
        "communicators.",
        unnamed, calls));
  if (sizeless > 0)
    list.push_back(fmt::format("{} of {} collectives state no size.", sizeless, calls));
  if (peer_copies > 0)
    list.push_back(fmt::format(
        "{} copies between GPUs count as copies, but may be collectives on copy engines, which run "
        "no kernel.",
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
        "Steps are bounded by the host's annotations: work that a device begins after the host's "
        "step counts in the next step.");
  }
  if (!trace.rank) list.emplace_back("The rank is not written (distributedInfo).");
}

}  // namespace

std::vector<std::string> limits_of(const Trace& trace, const TraceReport& report) {
  std::vector<std::string> list;
  add_what_is_missing(list, trace, report);
  list.emplace_back(
      "A trace shows one order of execution: a missing wait may have no effect in it.");
  list.emplace_back(
      "Memory ranges are not recorded: races, lifetimes and reused buffers cannot be checked.");
  list.emplace_back(
      "Readers of a collective's output are not recorded: a gather counts as late only if compute "
      "was idle until its end.");
  list.emplace_back(
      "An NCCL kernel also runs while it waits for other ranks: transfer and waiting look the "
      "same, "
      "and clocks of different ranks are not aligned.");
  list.emplace_back(
      "Values are not recorded: wrong scales, missing gradients and stale weights cannot be seen.");
  return list;
}

}  // namespace mfsdp::traces
