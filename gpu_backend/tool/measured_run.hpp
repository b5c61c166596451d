// The result of a run, out of its plan's facts and what was measured.
#pragma once

#include <optional>

#include "gpu_backend/tool/rank_machine.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// The run as it begins: the plan's facts, as `predicted` has them, and nothing measured yet.
[[nodiscard]] MeasuredRun head_of(const RunFigures& predicted, const MachineFacts& facts);

/// What the run came to. Memory is of one rank. `peak_tflops`: of the device in bf16, where there
/// is such a figure.
void complete(MeasuredRun& run, const RankMachine& machine, std::optional<double> peak_tflops);

/// Whether pools were used to the byte as predicted; what libraries take beside them is no matter.
[[nodiscard]] bool used_as_planned(const PredictedRun& predicted, const MeasuredRun& run);

}  // namespace mfsdp
