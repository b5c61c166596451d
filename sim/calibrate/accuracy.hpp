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

}  // namespace mfsdp
