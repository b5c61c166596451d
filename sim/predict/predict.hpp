// From a plan and a cluster to the record of one predicted step.
#pragma once

#include <functional>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"
#include "sim/cost/cost_model.hpp"
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

/// Simulates the program's train plan on a cluster of as many GPUs as its mesh, whose ranks differ
/// as `variation` says; `simulation.ranks` tells how much. Who ran it, when and under which name is
/// left to the caller. `host`: how long the host takes to issue an op; empty: no time, and
/// collectives begin in the order of their launches, as mfsdp-exec has it. `routed`: rows of
/// experts; empty: those of balance.
[[nodiscard]] Result<Prediction> predict(const Program& program, const CostModel& costs,
                                         const RankVariation& variation = {},
                                         const std::function<Nanos(const Op&)>& host = {},
                                         const RoutedRows& routed = {});

}  // namespace mfsdp
