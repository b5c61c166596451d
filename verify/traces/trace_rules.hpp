// Rules for a profiler's trace: MF810 to MF814. Private to the analysis.
#pragma once

#include <span>

#include "verify/findings/finding.hpp"
#include "verify/traces/collective_times.hpp"

namespace mfsdp::traces {

/// Input of the rules of one device.
struct DeviceContext {
  const Trace& trace;
  const ReportSettings& settings;
  const DeviceReport& report;  ///< incomplete: only device and begin are set
  std::span<const ExposedCall> calls;
  const BusyTime& compute;
};

/// Copy engines (MF810), the allocator (MF811, MF812), and MF813 if no wait names its record.
[[nodiscard]] RuleVerdict judge_host(const Trace& trace, const ReportSettings& settings);
/// Gathers that waited for reductions (MF813), and streams of reductions (MF814).
[[nodiscard]] RuleVerdict judge_device(const DeviceContext& device);

/// Only MF813.
[[nodiscard]] RuleVerdict judge_launch_order(const DeviceContext& device);
/// Only MF814.
[[nodiscard]] RuleVerdict judge_reduction_streams(const DeviceContext& device);

}  // namespace mfsdp::traces
