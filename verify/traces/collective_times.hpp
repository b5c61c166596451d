// Exposed times, stalls and queues of the collectives of one device. Private to the analysis.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "verify/traces/busy_time.hpp"
#include "verify/traces/trace_report.hpp"

namespace mfsdp::traces {

/// A collective call of one device, and its time during which no compute kernel runs.
struct ExposedCall {
  Nanos begin;
  const CollectiveCall* call = nullptr;
  Nanos exposed;
};

/// The time for which compute was idle until the call's end. None if no compute kernel begins
/// within `resumes_within` of that end.
[[nodiscard]] std::optional<Nanos> stall_of(const ExposedCall& call, const BusyTime& compute,
                                            const ReportSettings& settings);
/// Reduce-scatters, all-reduces and reduces.
[[nodiscard]] bool is_reduction(CollectiveOp op);
/// Bytes of the larger of input and output; none if size or type is unknown.
[[nodiscard]] std::optional<Bytes> bytes_of(const Trace& trace, const CollectiveCall& call);

/// By begin, then end, then stream.
[[nodiscard]] std::vector<ExposedCall> exposed_calls(std::vector<const CollectiveCall*> calls,
                                                     const BusyTime& compute);
/// Most exposed first.
[[nodiscard]] std::vector<CollectiveSummary> summarise(const Trace& trace,
                                                       std::span<const ExposedCall> calls);
void add_late_gathers(DeviceReport& report, const Trace& trace, std::span<const ExposedCall> calls,
                      const BusyTime& compute, const ReportSettings& settings);
void add_queued(DeviceReport& report, std::span<const ExposedCall> calls,
                const ReportSettings& settings);
[[nodiscard]] ReductionsInFlight reductions_in_flight(std::span<const ExposedCall> calls);

}  // namespace mfsdp::traces
