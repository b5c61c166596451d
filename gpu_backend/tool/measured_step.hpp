// From the times of ops to the record of one step and of all launches.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/plan/op_launch.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/backend.hpp"
#include "reports/record/facts.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// The fact that identifies the step of a measured run's times and timeline: its topic and its
/// name.
inline constexpr std::string_view kTimedTopic = "measured";
inline constexpr std::string_view kTimedRank = "rank";

struct MeasuredStep {
  std::int64_t rank = 0;         ///< the rank that was measured
  TimeSummary time;              ///< without rates; zero if nothing was timed
  std::vector<OpTime> timeline;  ///< by start, relative to the beginning of the step
  /// Exposed communication by axes (axis_times.hpp). If several collectives run at once, the one
  /// that ends last counts.
  Facts exposed;
};

/// Number of steps at the end of a run that are timed. Ops of the steps before and after the
/// recorded one may overlap it.
inline constexpr std::int64_t kTimedSteps = 3;

/// `launches` of one rank in its last kTimedSteps steps of `plan`; those of other plans are
/// ignored. The recorded step is the last but one(as in sim/simulator/simulation.hpp). It lasts
/// from the end of the last op of the step before to the end of its own last op. Ops of other steps
/// may run in that time. In a run of two steps it is the second, in a run of one step it is the
/// whole run. The timeline has the step's ops; those that ran before the step's beginning start
/// below 0. The time of a collective is the rank's and includes waiting for other ranks.
[[nodiscard]] MeasuredStep measure_step(const Program& program, const Plan& plan,
                                        std::span<const OpLaunch> launches);

/// For each class of ranks the step of its rank with the longest kernel time; the first of equal
/// ones. A rank whose launches are not known has none.
/// `programs`: of a job; each rank ran the train plan of its class.
[[nodiscard]] std::vector<MeasuredStep> slowest_steps(
    std::span<const Program> programs, std::span<const std::vector<OpLaunch>> by_rank);

/// The one of these with the longest kernel time; the first of equal ones. The other ranks wait
/// for it, and their waiting counts as their communication, so only this rank shows the
/// communication that no kernel hides. Usually it is the rank that a prediction reports if ranks
/// differ (RankSummary::reported).
[[nodiscard]] MeasuredStep slowest_step(std::span<const MeasuredStep> of_classes);

/// A rank's launches, in the order of `timings`. Steps count from 1 here.
[[nodiscard]] std::vector<OpLaunch> launches_of(const Program& program, std::int64_t rank,
                                                const std::vector<OpTiming>& timings);

}  // namespace mfsdp
