// Ops of one step, summed by what they have in common. Internal to this folder.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "reports/record/result.hpp"

namespace mfsdp {

struct OpTotal {
  Nanos time;
  std::int64_t count = 0;
};
using OpTotals = std::map<std::string, OpTotal>;

/// By stream, kind or name: the members of OpTime. Instances that the timeline leaves out count as
/// the one before them. Empty without a timeline.
[[nodiscard]] OpTotals op_totals(const RunResult& run, std::string OpTime::* member);

}  // namespace mfsdp
