// Whether a run can be run: its memory fits, and so do the rows that are routed to experts.
#pragma once

#include <optional>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"
#include "sim/predict/prediction_request.hpp"

namespace mfsdp {

/// Whether the capacity of experts takes all rows that are routed to them; true where no routing
/// was asked for.
[[nodiscard]] inline bool has_capacity(const Predicted& run) {
  return !run.routing || !run.routing->room || run.routing->room->holds;
}

/// Memory and capacity suffice.
[[nodiscard]] inline bool can_run(const PredictedRun& run) {
  return run.memory.fits && has_capacity(run);
}

/// Implements --require-fit: the run can run, and still fits if the prediction is wrong by its
/// known error. `allow_within_error` accepts a fit as predicted.
[[nodiscard]] inline bool passes_fit(const PredictedRun& run, bool allow_within_error) {
  return can_run(run) && (allow_within_error || !run.memory.barely_fits());
}

/// The error of a request whose routing exceeds the capacity of experts; none where it does not.
/// Builds no plan.
[[nodiscard]] std::optional<Error> lack_of_capacity(const PredictionRequest& request);

}  // namespace mfsdp
