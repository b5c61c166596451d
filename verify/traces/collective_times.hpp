// What is told about the collectives of one device. Private to the analysis.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "verify/traces/busy_time.hpp"
#include "verify/traces/trace_report.hpp"

namespace mfsdp::traces {

/// A call of one device, and how much of it no compute kernel covers.
struct ExposedCall {
  Nanos begin;
  const CollectiveCall* call = nullptr;
  Nanos exposed;
};

/// Compute stood still until a call's end: the part of it in which none ran, if compute goes on
/// within `resumes_within` of the end; none where it does not.
[[nodiscard]] std::optional<Nanos> stall_of(const ExposedCall& call, const BusyTime& compute,
                                            const ReportSettings& settings);
/// Reduce-scatters, all-reduces and reduces.
[[nodiscard]] bool is_reduction(CollectiveOp op);
/// Bytes of the larger side; none where size or type is not known.
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
