// When an engine's host comes to the ops of a step, and when streams pass its releases.
#pragma once

#include <vector>

#include "reports/record/result.hpp"
#include "sim/engines/engine_plan.hpp"
#include "sim/simulator/prices.hpp"

namespace mfsdp {

/// `timeline`: of the plan's kernels and collectives in one whole step. `host`: to issue an op. The
/// host begins the step when the timeline begins, as it waits at the end of each step.
[[nodiscard]] std::vector<OpMoment> moments_of(const EnginePlan& plan,
                                               const std::vector<OpTime>& timeline,
                                               const IssueTime& host);

}  // namespace mfsdp
