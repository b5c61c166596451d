// The result of a run, out of its plan's facts and what was measured.
#pragma once

#include "gpu_backend/tool/rank_machine.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// The run as it begins: the plan's facts, as `predicted` has them, and nothing measured yet.
[[nodiscard]] MeasuredRun head_of(const RunFigures& predicted, const MachineFacts& facts);

/// What the machine has measured. Memory is of one rank, times are of one step (slowest_step);
/// those of all steps follow from the steps (set_step_figures).
void complete(MeasuredRun& run, const RankMachine& machine);

/// Whether pools were used to the byte as predicted; what libraries take beside them is no matter.
[[nodiscard]] bool used_as_planned(const PredictedRun& predicted, const MeasuredRun& run);

}  // namespace mfsdp
