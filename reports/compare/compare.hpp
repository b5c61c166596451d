// Runs side by side: one column a run, one row a figure, sections of rows.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/cli/common_options.hpp"
#include "core/cli/text_style.hpp"
#include "core/plan/plan.hpp"
#include "reports/measures/measure.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

struct ComparedCell {
  std::string text;              ///< as it is shown; "-": not known
  std::optional<Figure> figure;  ///< where it is a number
};

/// The row of engines, which JSON and CSV have as results do, and people by their names.
inline constexpr const char* kEngineRow = "engine";

struct ComparedRow {
  std::string name;
  MeasureUnit unit = MeasureUnit::plain;
  std::vector<ComparedCell> cells = {};  ///< one a run

  [[nodiscard]] bool differs() const;
};

struct ComparedSection {
  std::string title;
  std::vector<std::string> notes = {};  ///< what its rows mean, or why there are none
  std::vector<ComparedRow> rows = {};
  bool relative = false;  ///< cells after the first are shown with their difference from it
  /// Titles of the columns if the columns are not the runs.
  std::vector<std::string> columns = {};
  /// Rows of text and Markdown, in which the rest is counted; JSON and CSV have all of them.
  std::size_t most_shown = std::numeric_limits<std::size_t>::max();
};

/// A run as a column's title: name or short id, and its kind, which no table leaves out.
struct ComparedRun {
  std::string label;  ///< "3fa91b2c"
  std::string name;
  std::string kind;  ///< "simulated" or "measured"
  std::string run_id;
};

struct Comparison {
  std::vector<ComparedRun> runs;
  std::vector<std::string> notes;
  std::vector<ComparedSection> sections;
};

/// The program of a run's plan; null where it is not known.
using ProgramOf = std::function<std::shared_ptr<const Program>(const RunResult&)>;

/// Compares with the first run. Timelines and steps are used where the runs have them. `program` is
/// asked where plans differ; without it buffers are not known.
[[nodiscard]] Comparison compare_runs(std::span<const RunResult> runs,
                                      const ProgramOf& program = {});

// Its parts.

/// Who ran what: kind, tool, model, cluster, versions, configuration, recipe and other facts.
[[nodiscard]] ComparedSection compare_heads(std::span<const RunResult> runs);
[[nodiscard]] ComparedSection compare_configurations(std::span<const RunResult> runs);
/// Every measure below a table's name: "memory", "time", "traffic", "plan".
[[nodiscard]] ComparedSection compare_measures(std::span<const RunResult> runs,
                                               const std::string& table);
/// Memory and times of each class of ranks, by role, as far as runs have classes.
[[nodiscard]] ComparedSection compare_classes(std::span<const RunResult> runs);
/// How long each stream is busy, and each kind of kernel, collective and copy takes, summed over
/// one step.
[[nodiscard]] std::vector<ComparedSection> compare_streams_and_kinds(
    std::span<const RunResult> runs);
/// Pools, units and ops that appeared, vanished or changed since the first run.
[[nodiscard]] ComparedSection compare_plans(std::span<const RunResult> runs);
/// Buffers that appeared, vanished, grew or shrank since the first run, those of numbered layers
/// together, with the largest difference first.
[[nodiscard]] ComparedSection compare_buffers(std::span<const RunResult> runs,
                                              const ProgramOf& program);
/// Loss and gradient norm of measured runs (compare/convergence.hpp).
[[nodiscard]] std::vector<ComparedSection> compare_convergence(std::span<const RunResult> runs);
/// Compares each measured run with its prediction: signed errors by figure, kind and op.
[[nodiscard]] std::vector<ComparedSection> prediction_errors(std::span<const RunResult> runs);

/// text: at most 100 columns, or the terminal's; runs that do not fit stand below. With
/// `differences_only` rows are left out in which all runs agree.
[[nodiscard]] std::string render_comparison(const Comparison& comparison, OutputFormat format,
                                            bool differences_only, const TextStyle& style);

}  // namespace mfsdp
