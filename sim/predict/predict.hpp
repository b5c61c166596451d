// From a plan and a cluster to the record of one predicted step.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"
#include "sim/cost/cost_model.hpp"
#include "sim/simulator/prices.hpp"
#include "sim/simulator/simulation.hpp"

namespace mfsdp {

/// Device memory of a program on a GPU.
struct Footprint {
  Bytes allocated;  ///< pools as they are packed, and the runtime
  Bytes least;      ///< with pools at their lower bounds; grows with micro-batch and sequence

  friend bool operator==(const Footprint&, const Footprint&) = default;
};

[[nodiscard]] Footprint footprint(const Program& program, const Gpu& gpu);

/// A prediction with what led to it.
struct Prediction {
  PredictedRun run;
  Simulation simulation;
};

/// The position of the program whose ranks allocate most memory.
[[nodiscard]] std::size_t fullest_class(std::span<const Program> programs, const Gpu& gpu);

/// How a host issues the ops of a program.
struct Issuing {
  IssueTime time;
  bool leaves_sms = false;  ///< as Prices has it
};

/// Simulates the plans of one role of a job's programs, one for each class of ranks, on a cluster of
/// as many GPUs as their mesh. `variation` sets how ranks differ; `simulation.ranks` reports the
/// effect. The caller fills in the user, date and name of the run. `hosts`: by program;
/// none: no time, and collectives begin in the order of their launches, as in mfsdp-exec.
/// `routed`: rows of experts; empty: balanced. `hash`: of the programs, if it is known. The run's
/// memory is that of fullest_class(), its times are those of the class that idles least, and its
/// FLOPs the mean over all ranks.
[[nodiscard]] Result<Prediction> predict(std::span<const Program> programs, const CostModel& costs,
                                         const RankVariation& variation = {},
                                         const std::vector<Issuing>& hosts = {},
                                         const RoutedRows& routed = {}, std::string hash = {},
                                         PlanRole role = PlanRole::train);

/// The same for a program that all ranks run.
[[nodiscard]] inline Result<Prediction> predict(const Program& program, const CostModel& costs,
                                                const RankVariation& variation = {},
                                                const std::vector<Issuing>& hosts = {},
                                                const RoutedRows& routed = {},
                                                PlanRole role = PlanRole::train) {
  return predict(std::span(&program, 1), costs, variation, hosts, routed, {}, role);
}

}  // namespace mfsdp
