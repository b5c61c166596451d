// Whether a run would end for want of room where rows of experts go.
#pragma once

#include <optional>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"
#include "sim/search/question.hpp"

namespace mfsdp {

/// True where nothing was asked of routing.
[[nodiscard]] inline bool has_room(const Predicted& run) {
  return !run.routing || !run.routing->room || run.routing->room->holds;
}

/// It fits, and has room.
[[nodiscard]] inline bool can_run(const PredictedRun& run) {
  return run.memory.fits && has_room(run);
}

/// What --require-fit asks: it can run, and fits even if the prediction is off by its error, where
/// that is known; `allow_within_error`: or it fits as predicted.
[[nodiscard]] inline bool passes_fit(const PredictedRun& run, bool allow_within_error) {
  return can_run(run) && (allow_within_error || !run.memory.barely_fits());
}

/// The error of a question whose routing needs more room than there is, found without building its
/// plan.
[[nodiscard]] std::optional<Error> lack_of_room(const Question& question);

}  // namespace mfsdp
