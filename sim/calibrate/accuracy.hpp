// Errors of our predictions in measured runs, by engine, models and GPU: docs/reference/accuracy.md.
#pragma once

#include <string>
#include <vector>

#include "sim/calibrate/own_error.hpp"

namespace mfsdp {

/// The errors of one kind of runs.
struct AccuracyRow {
  PredictionKind kind;
  OwnMemoryError memory;
  std::optional<OwnError> step;
};

/// One row for each kind, in the order of engines, options, GPUs and models.
[[nodiscard]] std::vector<AccuracyRow> accuracy(const OwnRuns& runs);

/// The table's titles, then a line of cells for each row, for any table renderer.
[[nodiscard]] std::vector<std::vector<std::string>> accuracy_cells(
    const std::vector<AccuracyRow>& rows);

/// A list of {"engine", "models", "gpu", "runs_that_corrected", "allocated", "reserved", "device",
/// "step"}. The last four are {"runs", "mean_error", "worst_error"}, or null without runs. Fractions,
/// not percent.
[[nodiscard]] std::string accuracy_json(const std::vector<AccuracyRow>& rows);

/// Errors of one engine in all runs, whatever their options, models and GPUs. Runs that corrected
/// its description are not among them.
struct EngineAccuracy {
  std::string engine;  ///< as people give it
  ErrorOfRuns allocated;
  ErrorOfRuns reserved;
  ErrorOfRuns step;
  std::int64_t corrected = 0;  ///< rows of memory or steps that are left out
};

/// One for each engine that ran, in the order of engines.
[[nodiscard]] std::vector<EngineAccuracy> accuracy_of_engines(const OwnRuns& runs);

[[nodiscard]] std::vector<std::vector<std::string>> accuracy_cells(
    const std::vector<EngineAccuracy>& engines);

/// A list of {"engine", "runs_that_corrected", "allocated", "reserved", "step"}.
[[nodiscard]] std::string accuracy_json(const std::vector<EngineAccuracy>& engines);

}  // namespace mfsdp
