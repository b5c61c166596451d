// One figure for how long a step of a measured run takes, out of all its steps: median_step_ns.
//
//   steps        1 2 3 4 5 | 6 7 8 ...
//                warm-up     their median
//
// Lists, comparisons, the store and mfsdp-exec's summary show it, and it is what a budget judges.
// The means of blocks give its random error (reports/statistics/blocks.hpp).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reports/record/result.hpp"

namespace mfsdp {

/// The times of the run's steps in nanoseconds, in order, without untimed steps.
[[nodiscard]] std::vector<double> step_times(std::span<const StepResult> steps);

/// The median of values of a run's steps, in order: of those after the warm-up; where there are
/// none, of those after the first; the first where there is no other. None of an empty list.
[[nodiscard]] std::optional<double> settled_median(std::span<const double> values);

/// The median step: settled_median() of the steps' times. None without a timed step.
[[nodiscard]] std::optional<Nanos> median_step(std::span<const StepResult> steps);

/// Sets the median step and the rates that follow from it, from the run's steps; a run without a
/// timed step knows none of them. `peak_tflops`: of the GPU; none: MFU is no number.
void set_step_figures(MeasuredRun& run, std::optional<double> peak_tflops);

/// A measured run whose step time or memory is 0 has not measured it yet: the run goes on, or it
/// was killed. These figures, and those that depend on them, become absent. Not for simulated runs.
void forget_unmeasured(RunFigures& run);

/// Why there are no figures of a run that has not come to its end; empty where it has.
[[nodiscard]] std::string why_unfinished(RunStatus status);

}  // namespace mfsdp
