// A report on the communication in a trace, with the trace's limits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/cli/text_style.hpp"
#include "core/formats/kineto.hpp"
#include "verify/findings/finding.hpp"

namespace mfsdp::traces {

/// Division of a window's time; span = compute + exposed + copies + idle, to the nanosecond.
struct TimeSplit {
  Nanos span;
  Nanos compute;  ///< a kernel runs that is not NCCL's
  Nanos exposed;  ///< the only kernels that run are NCCL's
  Nanos copies;   ///< only copies or fills run
  Nanos idle;     ///< nothing runs

  friend bool operator==(const TimeSplit&, const TimeSplit&) = default;
};

/// The calls of one kind on one process group.
struct CollectiveSummary {
  CollectiveOp op = CollectiveOp::other;
  std::string group;  ///< the profiler's name; "" not written
  std::string dtype;
  std::int64_t group_size = 0;  ///< 0: not written
  std::int64_t calls = 0;
  std::optional<Bytes> bytes;  ///< larger of input and output, all calls; none if one lacks it
  Nanos time;
  Nanos exposed;       ///< sum over calls of the time with no compute kernel on that device
  Nanos most_exposed;  ///< maximum over calls
};

/// An all-gather that compute waited for, though the gather's stream had been free earlier.
///
///   compute   ######################..........######
///   gather    --prev--|<-- free -->|===gather===|
///                     p            b     |stall|e
///
/// stall     = the end of [b, e) in which no compute kernel runs, if compute goes on within
///             `resumes_within` of e
/// p         = the end of the previous collective on its stream; the begin of the device's first
///             activity if there is none
/// could_hide = the smaller of the stall and the compute time in [p, b)
/// No trace shows whether the gather's input and its output buffer were ready at p.
struct LateGather {
  Nanos begin;
  Nanos end;
  std::int32_t stream = 0;
  std::string group;
  Nanos stall;
  Nanos could_hide;
  Nanos free_before_launch;  ///< part of [p, b) before the host launched it
  Nanos free_after_launch;   ///< part of [p, b) after its launch: it waited for an event or for SMs
  bool launch_known = false;
};

/// Collectives that waited for the previous one on their stream or process group: the host launched
/// them while that one ran, and they began within `back_to_back` of its end.
struct QueuedBehind {
  CollectiveOp first = CollectiveOp::other;
  CollectiveOp second = CollectiveOp::other;
  std::int64_t calls = 0;
  Nanos queued;   ///< from launch (or the first one's begin, if later) to the first one's end
  Nanos exposed;  ///< exposed time of the second collectives
};

/// The most reduce-scatters, all-reduces and reduces at once. The maxima may occur at different
/// times.
struct ReductionsInFlight {
  std::int64_t most_running = 0;        ///< kernels on the GPU
  std::int64_t most_queued = 0;         ///< launched and not begun
  std::int64_t most_pending = 0;        ///< launched and not ended; their inputs must stay alive
  std::optional<CollectiveOp> op = {};  ///< none: there are several kinds
};

struct KindTime {
  std::string kind;
  std::int64_t kernels = 0;
  Nanos time;  ///< sum over kernels, which may overlap
};

struct StepReport {
  std::int64_t step = 0;
  Nanos begin;
  TimeSplit time;
  std::vector<CollectiveSummary> collectives;  ///< those that begin in this step
};

struct DeviceReport {
  std::int32_t device = 0;
  Nanos begin;  ///< begin of the first activity
  TimeSplit time;
  bool steps_of_device = false;  ///< step bounds are the device's annotations; else the host's
  std::vector<StepReport> steps;
  std::vector<CollectiveSummary> collectives;
  std::vector<LateGather> late_gathers;  ///< the worst `most_listed`
  std::int64_t late_gather_count = 0;
  Nanos could_hide;  ///< sum over all late gathers
  std::vector<QueuedBehind> queued;
  std::int64_t launches_unknown = 0;  ///< collectives without a launch in the trace
  ReductionsInFlight reductions;
  std::vector<KindTime> kinds;  ///< most time first
};

struct TraceReport {
  std::string where;
  std::optional<std::int64_t> rank;
  std::optional<std::int64_t> world_size;
  std::int64_t events = 0;
  std::int64_t bytes = 0;
  std::vector<DeviceReport> devices = {};
  RuleVerdict verdict;                   ///< MF810 to MF814; findings name no ops
  std::vector<std::string> limits = {};  ///< what this trace cannot show, and how to record it
};

struct ReportSettings {
  Nanos resumes_within{50'000};
  Nanos back_to_back{10'000};
  Nanos least_hidable{10'000};  ///< shorter stalls count as launch gaps
  std::size_t most_listed = 20;
  Nanos least_held_up{50'000};  ///< sum over all calls of a device; less is no finding
  std::string cta_policy = {};  ///< NCCL_CTA_POLICY of the run; "" unknown
};

/// Errors: no GPU activity, or times that add up to more than 2^63 ns.
[[nodiscard]] Result<TraceReport> analyse_trace(const Trace& trace,
                                                const ReportSettings& settings = {});

/// Reports of one run, one for each rank. Every text ends in a newline.
[[nodiscard]] std::string render_trace_text(std::span<const TraceReport> reports,
                                            const TextStyle& style = {});
[[nodiscard]] std::string render_trace_markdown(std::span<const TraceReport> reports);
[[nodiscard]] std::string render_trace_json(std::span<const TraceReport> reports);

}  // namespace mfsdp::traces
