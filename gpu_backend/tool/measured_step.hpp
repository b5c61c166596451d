// From the times of ops to the record of one step, and of all launches.
#pragma once

#include <cstdint>
#include <vector>

#include "core/plan/op_launch.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/backend.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

struct MeasuredStep {
  TimeSummary time;              ///< without rates; zero where nothing was timed
  std::vector<OpTime> timeline;  ///< by start, from the step's begin on
};

/// `timings` of a rank's last two steps of `plan`; those of other plans are left out. The step is
/// what lies between the end of the last but one and the end of the last, so that what overlaps is
/// counted once; of a run of one step, all of it. A collective's time is the rank's: it includes
/// waiting for the others.
[[nodiscard]] MeasuredStep measure_step(const Program& program, const Plan& plan,
                                        const std::vector<OpTiming>& timings);

/// What a rank launched, in the order of `timings`. Steps count from 1 here.
[[nodiscard]] std::vector<OpLaunch> launches_of(const Program& program, std::int64_t rank,
                                                const std::vector<OpTiming>& timings);

}  // namespace mfsdp
