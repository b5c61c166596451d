// Limits of a trace. Private to the analysis.
#pragma once

#include <string>
#include <vector>

#include "verify/traces/trace_report.hpp"

namespace mfsdp::traces {

/// One sentence for each limit: first those of this trace, then those of all traces.
[[nodiscard]] std::vector<std::string> limits_of(const Trace& trace, const TraceReport& report);

}  // namespace mfsdp::traces
