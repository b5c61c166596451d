// The result of a run, from its plan's facts and its measurements.
#pragma once

#include "gpu_backend/tool/rank_machine.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// The record of a run that begins: the plan's facts from `predicted`, without measurements.
[[nodiscard]] MeasuredRun head_of(const RunFigures& predicted, const MachineFacts& facts);

/// Adds the machine's measurements. Memory is that of one rank, times are those of one step
/// (slowest_step). set_step_figures derives the figures of all steps from the steps. `predicted`
/// names the classes of ranks, and what they send.
void complete(MeasuredRun& run, const RankMachine& machine, const PredictedRun& predicted);

/// Whether pools were used exactly as predicted, to the byte. Memory that libraries take outside
/// them does not count.
[[nodiscard]] bool used_as_planned(const PredictedRun& predicted, const MeasuredRun& run);

}  // namespace mfsdp
