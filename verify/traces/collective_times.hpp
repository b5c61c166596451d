// What is told about the collectives of one device. Private to the analysis.
#pragma once

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
