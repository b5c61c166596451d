// Texts that mfsdp-exec prints before and after the steps of a run.
#pragma once

#include <chrono>
#include <string>

#include "core/cli/text_style.hpp"
#include "core/plan/plan.hpp"
#include "gpu_backend/tool/exec_options.hpp"
#include "gpu_backend/tool/rank_machine.hpp"
#include "gpu_backend/tool/run_inputs.hpp"
#include "gpu_backend/tool/saves.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// Model, machine, data, and losses to compare with.
[[nodiscard]] std::string run_title(const MeasuredRun& run, const MachineFacts& facts,
                                    const RunInputs& inputs, const Saves& saves,
                                    const ExecOptions& options);

/// Steps, time, losses. Tokens per second exclude the first step, which also initializes what later
/// ones reuse.
[[nodiscard]] std::string run_summary(const MeasuredRun& run, std::chrono::nanoseconds took);

/// Predicted and measured memory, by category and by pool.
[[nodiscard]] std::string memory_table(const PredictedRun& predicted, const MeasuredRun& run,
                                       const Program& program, const RanRun& ran,
                                       const TextStyle& style);

/// The destinations of exported weights; empty if there are none.
[[nodiscard]] std::string export_note(const RunInputs& inputs);

}  // namespace mfsdp
