// What a trace shows about communication, and what it cannot show.
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

/// Where the time of a window went; span = compute + exposed + copies + idle, to the nanosecond.
struct TimeSplit {
  Nanos span;
  Nanos compute;  ///< a kernel that is not NCCL's runs
  Nanos exposed;  ///< of NCCL's kernels only
  Nanos copies;   ///< only copies or fills
  Nanos idle;     ///< nothing

  friend bool operator==(const TimeSplit&, const TimeSplit&) = default;
};

/// The calls of one kind on one process group.
struct CollectiveSummary {
  CollectiveOp op = CollectiveOp::other;
  std::string group;  ///< as the profiler names it; "" where it did not
  std::string dtype;
  std::int64_t group_size = 0;  ///< 0: not written
  std::int64_t calls = 0;
  std::optional<Bytes> bytes;  ///< of the larger side, all calls; none where one call lacks it
  Nanos time;
  Nanos exposed;       ///< sum over calls of the time with no compute kernel on that device
  Nanos most_exposed;  ///< of one call
};

/// An all-gather that compute stood still for, though its stream had been free while compute ran.
///
///   compute   ######################..........######
///   gather    --prev--|<-- free -->|===gather===|
///                     p            b     |stall|e
///
/// stall     = the end of [b, e) in which no compute kernel runs, if compute goes on within
///             `resumes_within` of e
/// could_hide = the smaller of the stall and the compute in [p, b), p being the end of the
///             collective before it on its stream (the device's first activity, if there is none)
/// Whether its input was ready or its output had a place at p, no trace shows.
struct LateGather {
  Nanos begin;
  Nanos end;
  std::int32_t stream = 0;
  std::string group;
  Nanos stall;
  Nanos could_hide;
  Nanos free_before_launch;  ///< of [p, b): the host had not launched it yet
  Nanos free_after_launch;   ///< of [p, b): it was launched, and waited for an event or for SMs
  bool launch_known = false;
};

/// Collectives that the host had launched while the one before them on their stream or process
/// group still ran, and that began within `back_to_back` of its end: they waited for it.
struct QueuedBehind {
  CollectiveOp first = CollectiveOp::other;
  CollectiveOp second = CollectiveOp::other;
  std::int64_t calls = 0;
  Nanos queued;   ///< from launch (or the first one's begin, if later) to the first one's end
  Nanos exposed;  ///< of the second ones
};

/// Reduce-scatters, all-reduces and reduces: how many at one time, each at most. These maxima may
/// be of different times.
struct ReductionsInFlight {
  std::int64_t most_running = 0;        ///< kernels on the GPU
  std::int64_t most_queued = 0;         ///< launched and not begun
  std::int64_t most_pending = 0;        ///< launched and not ended; their inputs must stay alive
  std::optional<CollectiveOp> op = {};  ///< where all are of one kind
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
  std::vector<CollectiveSummary> collectives;  ///< that begin in it
};

struct DeviceReport {
  std::int32_t device = 0;
  Nanos begin;  ///< of the first activity
  TimeSplit time;
  bool steps_of_device = false;  ///< bounds are the device's annotations, else the host's
  std::vector<StepReport> steps;
  std::vector<CollectiveSummary> collectives;
  std::vector<LateGather> late_gathers;  ///< the worst `most_listed`
  std::int64_t late_gather_count = 0;
  Nanos could_hide;  ///< of all late gathers
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
  std::vector<DeviceReport> devices;
  RuleVerdict verdict;              ///< of MF810 to MF814; findings name no ops
  std::vector<std::string> limits;  ///< what this trace cannot show, and what would show it
};

struct ReportSettings {
  Nanos resumes_within{50'000};
  Nanos back_to_back{10'000};
  Nanos least_hidable{10'000};  ///< shorter stalls are launch gaps
  std::size_t most_listed = 20;
  Nanos least_held_up{50'000};  ///< of all calls of a device together: less is no finding
  std::string cta_policy = {};  ///< NCCL_CTA_POLICY of the run, where it is known; else ""
};

/// Errors: no GPU activity, or times that add up to more than 2^63 ns.
[[nodiscard]] Result<TraceReport> analyse_trace(const Trace& trace,
                                                const ReportSettings& settings = {});

/// Reports of one run, a rank each. Every text ends in a newline.
[[nodiscard]] std::string render_trace_text(std::span<const TraceReport> reports,
                                            const TextStyle& style = {});
[[nodiscard]] std::string render_trace_markdown(std::span<const TraceReport> reports);
[[nodiscard]] std::string render_trace_json(std::span<const TraceReport> reports);

}  // namespace mfsdp::traces
