#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "verify/traces/busy_time.hpp"
#include "verify/traces/collective_times.hpp"
#include "verify/traces/kernel_kinds.hpp"
#include "verify/traces/step_windows.hpp"
#include "verify/traces/trace_limits.hpp"
#include "verify/traces/trace_report.hpp"
#include "verify/traces/trace_rules.hpp"

namespace mfsdp::traces {
namespace {

/// The activities of one device.
struct DeviceActivity {
  std::vector<Interval> kernels;
  std::vector<Interval> copies;
  std::vector<const CollectiveCall*> calls;
};

struct Kinds {
  std::map<std::string, KindTime> rows;

  void add(std::string_view kind, Nanos time) {
    KindTime& row = rows.try_emplace(std::string(kind)).first->second;
    row.kind = kind;
    ++row.kernels;
    row.time += time;
  }
};

std::vector<Interval> joined(std::span<const Interval> first, std::vector<Interval> second) {
  second.insert(second.end(), first.begin(), first.end());
  return second;
}

/// Unions of the times in which compute runs, any kernel runs, and anything runs.
struct Unions {
  BusyTime compute;
  BusyTime kernels;
  BusyTime all;

  explicit Unions(DeviceActivity& activity) : compute(std::exchange(activity.kernels, {})) {
    std::vector<Interval> communication;
    for (const CollectiveCall* call : activity.calls)
      communication.push_back({call->begin, call->end});
    kernels = BusyTime(joined(compute.stretches(), std::move(communication)));
    all = BusyTime(joined(kernels.stretches(), std::exchange(activity.copies, {})));
  }

  [[nodiscard]] TimeSplit split(Nanos begin, Nanos end) const {
    const Nanos with_compute = compute.within(begin, end);
    const Nanos with_kernels = kernels.within(begin, end);
    const Nanos busy = all.within(begin, end);
    return {.span = end - begin,
            .compute = with_compute,
            .exposed = with_kernels - with_compute,
            .copies = busy - with_kernels,
            .idle = end - begin - busy};
  }
};

void add_steps(DeviceReport& report, const Trace& trace, const Unions& unions,
               std::span<const ExposedCall> calls) {
  std::vector<StepWindow> windows = step_windows(trace.steps, report.device);
  report.steps_of_device = !windows.empty();
  // A device's annotation covers the launches of the thread that made it. Backward has another
  // thread, so its work may end later.
  if (report.steps_of_device)
    windows.back().end = std::max(windows.back().end, report.begin + report.time.span);
  else
    windows = step_windows(trace.steps, std::nullopt);
  for (const StepWindow& window : windows) {
    const auto begin = std::ranges::lower_bound(calls, window.begin, {}, &ExposedCall::begin);
    const auto end = std::ranges::lower_bound(calls, window.end, {}, &ExposedCall::begin);
    const bool nothing = end < begin;
    report.steps.push_back({.step = window.step,
                            .begin = window.begin,
                            .time = unions.split(window.begin, std::max(window.begin, window.end)),
                            .collectives = summarise(trace, nothing ? std::span<const ExposedCall>()
                                                                    : std::span(begin, end))});
  }
}

DeviceReport report_of(std::int32_t device, DeviceActivity activity, Kinds& kinds,
                       const Trace& trace, const ReportSettings& settings, RuleVerdict& verdict) {
  DeviceReport report;
  report.device = device;
  const Unions unions(activity);
  const auto stretches = unions.all.stretches();
  if (!stretches.empty()) {
    report.begin = stretches.front().begin;
    report.time = unions.split(stretches.front().begin, stretches.back().end);
  }
  const std::vector<ExposedCall> calls = exposed_calls(std::move(activity.calls), unions.compute);
  for (const ExposedCall& call : calls)
    kinds.add(fmt::format("nccl {}", to_string(call.call->op)), call.call->end - call.call->begin);
  report.collectives = summarise(trace, calls);
  add_steps(report, trace, unions, calls);
  add_late_gathers(report, trace, calls, unions.compute, settings);
  add_queued(report, calls, settings);
  report.reductions = reductions_in_flight(calls);
  verdict.add(judge_device({trace, settings, report, calls, unions.compute}));
  for (auto& [kind, row] : kinds.rows) report.kinds.push_back(row);
  std::ranges::stable_sort(report.kinds, std::ranges::greater(), &KindTime::time);
  return report;
}

TraceReport analyse(const Trace& trace, const ReportSettings& settings) {
  TraceReport report{.where = trace.where,
                     .rank = trace.rank,
                     .world_size = trace.world_size,
                     .events = trace.events,
                     .bytes = trace.bytes,
                     .verdict = judge_host(trace, settings)};
  std::vector<KernelKind> kind_of(trace.names.size());
  std::ranges::transform(trace.names, kind_of.begin(), kernel_kind);
  std::map<std::int32_t, std::pair<DeviceActivity, Kinds>> devices;
  for (const GpuWork& work : trace.work) {
    auto& [activity, kinds] = devices[work.device];
    const bool kernel = work.kind == WorkKind::kernel;
    (kernel ? activity.kernels : activity.copies).push_back({work.begin, work.end});
    const KernelKind kind = kernel                        ? kind_of[work.name]
                            : work.kind == WorkKind::copy ? KernelKind::copy
                                                          : KernelKind::fill;
    kinds.add(to_string(kind), work.end - work.begin);
  }
  for (const CollectiveCall& call : trace.collectives)
    devices[call.device].first.calls.push_back(&call);
  for (auto& [device, parts] : devices)
    report.devices.push_back(
        report_of(device, std::move(parts.first), parts.second, trace, settings, report.verdict));
  report.limits = limits_of(trace, report);
  return report;
}

}  // namespace

Result<TraceReport> analyse_trace(const Trace& trace, const ReportSettings& settings) {
  if (trace.work.empty() && trace.collectives.empty())
    return fail(trace.where,
                "expected kernels of a GPU; was the profiler given ProfilerActivity.CUDA?");
  try {
    return analyse(trace, settings);
  } catch (const OverflowError&) {
    return fail(trace.where, "expected times, and bytes, that add up to less than 2^63");
  }
}

}  // namespace mfsdp::traces
