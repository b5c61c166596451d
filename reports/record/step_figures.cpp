#include "reports/record/step_figures.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>

#include "reports/record/rates.hpp"
#include "reports/statistics/blocks.hpp"
#include "reports/statistics/sample.hpp"

namespace mfsdp {
namespace {

constexpr std::array kMemoryFigures{ResultFigure::capacity_bytes, ResultFigure::allocated_bytes,
                                    ResultFigure::peak_bytes,     ResultFigure::categories,
                                    ResultFigure::fits,           ResultFigure::headroom_bytes,
                                    ResultFigure::reserve_bytes};

/// The median step and what follows from it.
constexpr std::array kMedianFigures{ResultFigure::median_step_ns,
                                    ResultFigure::tokens_per_second_per_gpu,
                                    ResultFigure::tflops_per_gpu, ResultFigure::mfu};

/// The recorded step and what it consists of.
constexpr std::array kStepFigures{
    ResultFigure::step_ns,         ResultFigure::compute_ns,
    ResultFigure::idle_ns,         ResultFigure::exposed_communication_ns,
    ResultFigure::contention_ns,   ResultFigure::overlap_fraction,
    ResultFigure::communication_ns};

template <std::size_t count>
void add_all(FigureSet& absent, const std::array<ResultFigure, count>& figures) {
  for (const ResultFigure figure : figures) absent.add(figure);
}

}  // namespace

std::vector<double> step_times(std::span<const StepResult> steps) {
  std::vector<double> times;
  for (const StepResult& step : steps)
    if (step.timed && step.duration > Nanos(0))
      times.push_back(static_cast<double>(step.duration.value));
  return times;
}

std::optional<double> settled_median(std::span<const double> values) {
  if (values.empty()) return std::nullopt;
  const std::size_t warm_up = BlockRule().warm_up;
  const std::size_t left_out =
      values.size() > warm_up ? warm_up : std::min<std::size_t>(values.size() - 1, 1);
  return median_of(values.subspan(left_out));
}

std::optional<Nanos> median_step(std::span<const StepResult> steps) {
  const std::optional<double> median = settled_median(step_times(steps));
  if (!median) return std::nullopt;
  return Nanos(std::llround(*median));
}

void set_step_figures(MeasuredRun& run, std::optional<double> peak_tflops) {
  run.time.median_step = median_step(run.steps).value_or(Nanos(0));
  const Rates rates = rates_of(run, run.time.median_step);
  run.time.tokens_per_second_per_gpu = rates.tokens_per_second;
  run.time.tflops_per_gpu = rates.tflops;
  run.time.mfu =
      peak_tflops ? rates.tflops / *peak_tflops : std::numeric_limits<double>::quiet_NaN();
  forget_unmeasured(run);
}

void forget_unmeasured(RunFigures& run) {
  const auto is_zero = [&](ResultFigure figure, std::int64_t value) {
    return !run.absent.has(figure) && value == 0;
  };
  const TimeSummary& time = run.time;
  if (is_zero(ResultFigure::allocated_bytes, run.memory.allocated.value) ||
      is_zero(ResultFigure::peak_bytes, run.memory.peak.value))
    add_all(run.absent, kMemoryFigures);
  if (is_zero(ResultFigure::median_step_ns, time.median_step.value))
    add_all(run.absent, kMedianFigures);
  if (is_zero(ResultFigure::compute_ns, time.compute.value) && time.communication == Nanos(0) &&
      time.idle == Nanos(0))
    add_all(run.absent, kStepFigures);
}

std::string why_unfinished(RunStatus status) {
  switch (status) {
    case RunStatus::running: return "it still runs, or was killed";
    case RunStatus::failed: return "it failed";
    case RunStatus::complete:
    case RunStatus::interrupted: break;
  }
  return "";
}

}  // namespace mfsdp
