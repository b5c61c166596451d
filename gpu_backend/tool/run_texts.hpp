// What mfsdp-exec prints around the steps of a run.
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

/// Model, machine, data, and what a loss is to be compared with.
[[nodiscard]] std::string run_title(const MeasuredRun& run, const MachineFacts& facts,
                                    const RunInputs& inputs, const Saves& saves,
                                    const ExecOptions& options);

/// Steps, time, losses; tokens a second behind the first step, which also makes what later ones
/// find ready.
[[nodiscard]] std::string run_summary(const MeasuredRun& run, std::chrono::nanoseconds took);

/// Predicted against measured, category by category and pool by pool.
[[nodiscard]] std::string memory_table(const PredictedRun& predicted, const MeasuredRun& run,
                                       const Program& program, const RanRun& ran,
                                       const TextStyle& style);

/// Where weights went to; empty where nowhere.
[[nodiscard]] std::string export_note(const RunInputs& inputs);

}  // namespace mfsdp
