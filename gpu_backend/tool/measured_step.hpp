// From the times of ops to the record of one step, and of all launches.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/plan/op_launch.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/backend.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// The fact that says whose step a measured run's times and timeline are: its topic and its name.
inline constexpr std::string_view kTimedTopic = "measured";
inline constexpr std::string_view kTimedRank = "rank";

struct MeasuredStep {
  std::int64_t rank = 0;         ///< whose
  TimeSummary time;              ///< without rates; zero where nothing was timed
  std::vector<OpTime> timeline;  ///< by start, relative to the step's begin
};

/// So many of a run's last steps are timed: of the one that is recorded, those beside it may run
/// ahead or still run.
inline constexpr std::int64_t kTimedSteps = 3;

/// `launches` of one rank in its last kTimedSteps steps of `plan`; those of other plans are left
/// out. The step is the last but one, as sim/simulator/simulation.hpp has it: what lies between the
/// end of the last op of the one before and of its own, whichever step's ops run then. Of a run of
/// two steps it is the second, of one all of it. The timeline is of its ops: those that ran ahead
/// of the step's begin start below 0. A collective's time is the rank's: it includes waiting for
/// the others.
[[nodiscard]] MeasuredStep measure_step(const Program& program, const Plan& plan,
                                        std::span<const OpLaunch> launches);

/// That of the rank whose kernels take longest, of equals the first: the others wait for it, and
/// what they wait counts as their communication, so that it alone shows what no kernel hides. As a
/// rule it is the rank that a prediction is of where ranks differ (RankSummary::reported).
[[nodiscard]] MeasuredStep slowest_step(const Program& program, const Plan& plan,
                                        std::span<const std::vector<OpLaunch>> by_rank);

/// What a rank launched, in the order of `timings`. Steps count from 1 here.
[[nodiscard]] std::vector<OpLaunch> launches_of(const Program& program, std::int64_t rank,
                                                const std::vector<OpTiming>& timings);

}  // namespace mfsdp
