// Predicted against measured time of a step, by stream and by kind of op.
#pragma once

#include <string>

#include "core/cli/text_style.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// Two tables: compute, exposed communication and idle time of the step with each stream's busy
/// time; and the time of each kind of op, by stream, largest first. Empty if nothing was timed.
[[nodiscard]] std::string render_step_tables(const PredictedRun& predicted,
                                             const MeasuredRun& measured, const TextStyle& style);

}  // namespace mfsdp
