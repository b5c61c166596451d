#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/cli/format.hpp"
#include "reports/compare/cells.hpp"
#include "reports/compare/compare.hpp"
#include "reports/compare/convergence.hpp"
#include "reports/compare/op_totals.hpp"

namespace mfsdp {
namespace {

using Runs = std::span<const RunResult>;
constexpr std::size_t kWorstOps = 12;

// ---- convergence
// ---------------------------------------------------------------------------------

std::string place_text(double place, CurveBy by) {
  const auto whole = static_cast<std::int64_t>(std::llround(place));
  return by == CurveBy::steps ? fmt::format("step {}", whole) : format_count(whole) + " tokens";
}

ComparedCell plain_cell(double value) {
  return {.text = fmt::format("{:.4g}", value), .figure = value};
}

std::vector<ComparedCell> cells_of(const CurveDifference& difference, CurveBy by) {
  std::vector<ComparedCell> cells;
  cells.push_back({.text = fmt::format("{}", difference.places),
                   .figure = static_cast<std::int64_t>(difference.places)});
  if (difference.places == 0) {
    for (int i = 0; i < 5; ++i) cells.push_back(text_cell(""));
    return cells;
  }
  cells.push_back(plain_cell(difference.mean));
  cells.push_back(plain_cell(difference.most));
  cells.push_back(text_cell(place_text(difference.most_at, by)));
  cells.push_back(difference.band ? plain_cell(*difference.band) : text_cell(""));
  cells.push_back(text_cell(difference.diverges_at ? place_text(*difference.diverges_at, by)
                            : !difference.band     ? "too few steps"
                                                   : "nowhere"));
  return cells;
}

std::optional<std::size_t> first_with_losses(Runs runs) {
  for (std::size_t i = 0; i < runs.size(); ++i)
    if (!curve_of(runs[i], CurveOf::loss, CurveBy::steps).at.empty()) return i;
  return std::nullopt;
}

void add_differences(ComparedSection& section, Runs runs, std::size_t base, CurveBy by) {
  for (std::size_t i = base + 1; i < runs.size(); ++i)
    for (const CurveOf what : {CurveOf::loss, CurveOf::grad_norm}) {
      const Curve first = curve_of(runs[base], what, by);
      const Curve second = curve_of(runs[i], what, by);
      if (second.at.empty()) continue;
      ComparedRow row;
      row.name = fmt::format("{}, run {} - run {}",
                             what == CurveOf::loss ? "loss" : "gradient norm", i + 1, base + 1);
      row.cells = cells_of(difference_of(first, second), by);
      section.rows.push_back(std::move(row));
    }
}

// ---- prediction
// ----------------------------------------------------------------------------------

/// simulated - measured, and the same as a part of measured.
ComparedRow error_row(std::string name, MeasureUnit unit, const Figure& predicted,
                      const Figure& measured) {
  const auto* a = std::get_if<std::int64_t>(&predicted);
  const auto* b = std::get_if<std::int64_t>(&measured);
  const Figure error = a != nullptr && b != nullptr
                           ? Figure(*a - *b)
                           : Figure(real_of(predicted) - real_of(measured));
  const std::string part = relative_text(measured, predicted);
  std::optional<Figure> share;
  if (!part.empty()) share = real_of(error) / std::fabs(real_of(measured));
  return {.name = std::move(name),
          .unit = unit,
          .cells = {figure_cell(unit, predicted),
                    figure_cell(unit, measured),
                    {.text = difference_text(unit, measured, predicted), .figure = error},
                    {.text = part.empty() ? "-" : part, .figure = share}}};
}

ComparedSection errors_of_measures(const RunResult& predicted, const RunResult& measured,
                                   std::string title) {
  ComparedSection section{.title = std::move(title), .notes = {}, .rows = {}};
  section.columns = {"simulated", "measured", "error", "error %"};
  for (const Measure& measure : measures()) {
    const auto a = measure.read(predicted);
    const auto b = measure.read(measured);
    if (a && b) section.rows.push_back(error_row(measure.title, measure.unit, *a, *b));
  }
  if (predicted.plan_hash != measured.plan_hash)
    section.notes.emplace_back("the plans differ: errors are of the configuration, too");
  if (predicted.cluster.gpu != measured.cluster.gpu ||
      predicted.cluster.gpus != measured.cluster.gpus)
    section.notes.push_back(fmt::format("predicted for {} x {}, measured on {} x {}",
                                        predicted.cluster.gpus, predicted.cluster.gpu,
                                        measured.cluster.gpus, measured.cluster.gpu));
  section.notes.emplace_back("errors are simulated - measured");
  return section;
}

/// By kind, all of them; by op, those with the largest errors.
ComparedSection errors_of_ops(const RunResult& predicted, const RunResult& measured,
                              std::string title, std::string OpTime::* member, std::size_t most) {
  ComparedSection section{.title = std::move(title), .notes = {}, .rows = {}};
  section.columns = {"simulated", "measured", "error", "error %"};
  const OpTotals a = op_totals(predicted, member);
  const OpTotals b = op_totals(measured, member);
  std::vector<std::pair<std::string, std::pair<Nanos, Nanos>>> both;
  for (const auto& [name, total] : a)
    if (const auto found = b.find(name); found != b.end())
      both.push_back({name, {total.time, found->second.time}});
  if (most < both.size()) {
    std::ranges::stable_sort(both, std::ranges::greater(), [](const auto& item) {
      return std::llabs((item.second.first - item.second.second).value);
    });
    section.notes.push_back(fmt::format("the {} of {} with the largest errors", most, both.size()));
    both.resize(most);
  }
  for (const auto& [name, times] : both)
    section.rows.push_back(error_row(name, MeasureUnit::nanoseconds, Figure(times.first.value),
                                     Figure(times.second.value)));
  if (both.empty()) section.notes.emplace_back("times of single ops are not stored of both runs");
  return section;
}

/// The simulated run that is a prediction of the measured one: of its plan, else of its model,
/// cluster and configuration's length.
const RunResult* prediction_of(const RunResult& measured, Runs runs) {
  const RunResult* like = nullptr;
  for (const RunResult& run : runs) {
    if (run.predicted() == nullptr || run.model_name != measured.model_name) continue;
    if (run.plan_hash == measured.plan_hash) return &run;
    if (like == nullptr) like = &run;
  }
  return like;
}

std::size_t number_in(Runs runs, const RunResult& run) {
  return static_cast<std::size_t>(&run - runs.data()) + 1;
}

}  // namespace

std::vector<ComparedSection> compare_convergence(Runs runs) {
  std::vector<ComparedSection> sections;
  const std::optional<std::size_t> base = first_with_losses(runs);
  if (!base) return sections;
  for (const CurveBy by : {CurveBy::steps, CurveBy::tokens}) {
    ComparedSection section{.title = by == CurveBy::steps ? "Convergence by step"
                                                          : "Convergence by tokens"};
    section.columns = {"places", "mean", "largest", "at", "noise band", "diverges at"};
    add_differences(section, runs, *base, by);
    if (section.rows.empty()) continue;
    section.notes.push_back(
        fmt::format("noise band: 3 robust deviations of a mean of {0} differences, estimated from "
                    "their changes; "
                    "runs diverge where {0} such means in a row are beyond it",
                    kWindow));
    sections.push_back(std::move(section));
  }
  return sections;
}

std::vector<ComparedSection> prediction_errors(Runs runs) {
  std::vector<ComparedSection> sections;
  for (const RunResult& run : runs) {
    if (run.measured() == nullptr) continue;
    const RunResult* predicted = prediction_of(run, runs);
    if (predicted == nullptr) continue;
    const std::string of = fmt::format("run {} (simulated) of run {} (measured)",
                                       number_in(runs, *predicted), number_in(runs, run));
    sections.push_back(errors_of_measures(*predicted, run, "Prediction " + of));
    sections.push_back(errors_of_ops(*predicted, run, "Prediction by kind, " + of, &OpTime::kind,
                                     static_cast<std::size_t>(-1)));
    sections.push_back(
        errors_of_ops(*predicted, run, "Prediction by op, " + of, &OpTime::name, kWorstOps));
  }
  return sections;
}

}  // namespace mfsdp
