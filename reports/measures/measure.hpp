// Measures that can be limited, compared and followed over time: one table for budgets,
// comparisons, histories and help.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/vocabulary.hpp"
#include "reports/record/result.hpp"
#include "reports/statistics/judge.hpp"

namespace mfsdp {

enum class MeasureUnit { bytes, nanoseconds, count, fraction, rate, plain };

/// Where a figure comes from, which decides how two of them are compared.
enum class Nature {
  planned,  ///< the plan's own: exact, simulated or measured
  timed,    ///< by prices in a simulation (exact), by a clock on a machine (samples)
  trained   ///< losses and norms: as the run printed them
};

/// A whole number in its unit, or a real one.
using Figure = std::variant<std::int64_t, double>;
[[nodiscard]] double real_of(const Figure& figure);
/// Exact where both are whole. Figures of one measure are of one kind.
[[nodiscard]] bool is_less(const Figure& a, const Figure& b);

struct Measure {
  std::string key;    ///< as in budgets: "memory.allocated_bytes"
  std::string title;  ///< "allocated"
  MeasureUnit unit = MeasureUnit::count;
  Better better = Better::lower;
  Nature nature = Nature::planned;
  bool golden = false;  ///< part of budgets that are written from a run
  /// None if the run does not have the figure.
  std::function<std::optional<Figure>(const RunResult&)> read = {};

  /// "memory.peak_categories" and "activation_bytes".
  [[nodiscard]] std::string table() const;
  [[nodiscard]] std::string name() const;
};

/// The measure as the subject of a sentence: "Allocated memory", "Activation memory at the peak",
/// "All-gather traffic", "Median step".
[[nodiscard]] std::string subject_of(const Measure& measure);

/// All that have a key of their own, tables together, in the order in which they are shown.
[[nodiscard]] const std::vector<Measure>& measures();
/// One of measures(); null for other keys.
[[nodiscard]] const Measure* find_measure(std::string_view key);

/// The mean loss of training step `step`, its gradient norm, and the loss of the evaluation after
/// it: "loss.100", "grad_norm.100", "evaluation_loss.100".
enum class StepMeasure { loss, grad_norm, evaluation_loss };
constexpr auto value_names(StepMeasure) {
  return name_array("loss", "grad_norm", "evaluation_loss");
}
[[nodiscard]] Measure measure_at_step(StepMeasure what, std::int64_t step);

/// Figures of one class of ranks of a job, such as a stage of a pipeline. A pipeline's bubble is part
/// of `idle_ns`.
enum class ClassMeasure {
  allocated_bytes,
  peak_bytes,
  host_bytes,
  step_ns,
  compute_ns,
  exposed_communication_ns,
  idle_ns,
  send_bytes
};
constexpr auto value_names(ClassMeasure) {
  return name_array("allocated_bytes", "peak_bytes", "host_bytes", "step_ns", "compute_ns",
                    "exposed_communication_ns", "idle_ns", "send_bytes");
}
/// "classes.stage_0.idle_ns".
[[nodiscard]] Measure measure_of_class(ClassMeasure what, const std::string& role);
/// The measure of such a key; none for other keys.
[[nodiscard]] std::optional<Measure> class_measure_named(std::string_view key);
/// Those of all classes of the run whose roles are keys of TOML as they are.
[[nodiscard]] std::vector<Measure> class_measures(const RunResult& run);

/// Times of the single steps of a measured run, in ns and in order, where the measure is one or
/// follows from them alone. Empty where it does not, or there are none, as of simulated runs.
[[nodiscard]] std::vector<double> steps_of(const Measure& measure, const RunResult& run);

/// The value of such a measure for a step of that duration. Rates are scaled: the rate of the whole
/// run, times its median step, divided by the step.
[[nodiscard]] double value_at_step(const Measure& measure, const RunResult& run, double step);

/// For people: "32.38 GiB", "872.41 ms", "3,179", "45.2 %", "12,346".
[[nodiscard]] std::string human_text(MeasureUnit unit, const Figure& figure);
/// To the last digit, without a unit: "34768170496".
[[nodiscard]] std::string exact_text(const Figure& figure);
/// All its digits with the unit: "2,916,943,360 B", "1,234,567 ns", "12"; else as human_text().
[[nodiscard]] std::string digits_text(MeasureUnit unit, const Figure& figure);
/// The amount by which `to` is more than `from`, with its sign: "+1 B", "-12.35 ms", "+1.2 points".
[[nodiscard]] std::string difference_text(MeasureUnit unit, const Figure& from, const Figure& to);
/// The same as a part of `from`: "+5.3 %"; "" where that is 0, "<0.1 %" where it is so small.
[[nodiscard]] std::string relative_text(const Figure& from, const Figure& to);

}  // namespace mfsdp
