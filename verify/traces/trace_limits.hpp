// What a trace cannot show. Private to the analysis.
#pragma once

#include <string>
#include <vector>

#include "verify/traces/trace_report.hpp"

namespace mfsdp::traces {

/// One sentence each: first what this trace lacks, then what no such trace holds.
[[nodiscard]] std::vector<std::string> limits_of(const Trace& trace, const TraceReport& report);

}  // namespace mfsdp::traces
