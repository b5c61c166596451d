// The result of a run, out of its plan's prediction and what was measured.
#pragma once

#include <optional>

#include "core/plan/result.hpp"
#include "gpu_backend/tool/rank_machine.hpp"

namespace mfsdp {

/// The run as it begins: the plan's facts, and nothing measured yet.
[[nodiscard]] RunResult head_of(const RunResult& predicted, const MachineFacts& facts);

/// What the run came to. Memory is of one rank. `peak_tflops`: of the device in bf16, where there
/// is such a figure.
void complete(RunResult& run, const RankMachine& machine, std::optional<double> peak_tflops);

/// Whether pools were used to the byte as predicted; what libraries take beside them is no matter.
[[nodiscard]] bool used_as_planned(const RunResult& predicted, const RunResult& run);

}  // namespace mfsdp
