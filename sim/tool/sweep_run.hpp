// Comma lists: every combination predicted on all cores, a row each.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "reports/record/result.hpp"
#include "reports/tool/run_store.hpp"
#include "reports/tool/session.hpp"
#include "sim/search/question.hpp"
#include "sim/tool/sim_options.hpp"
#include "sim/tool/sweep.hpp"

namespace mfsdp {

/// A combination and what became of it.
struct SweepRow {
  std::vector<std::string> values;  ///< one for each axis
  std::optional<Question> question;
  std::optional<Error> impossible;  ///< why there is no such configuration
  bool too_large = false;           ///< not predicted, since it does not fit
  std::optional<Footprint> memory;  ///< of that, unless a bound was enough to know
  std::optional<PredictedRun> run;  ///< without its timelines; none where interrupted
};

/// Asks each combination's question; those that make no configuration are rows all the same, and so
/// are those that an interruption leaves without a question.
/// Errors: flags that are wrong by themselves, and the first combination's where none is possible.
[[nodiscard]] Result<std::vector<SweepRow>> sweep_rows(const Sweep& sweep, const Session& session);

enum class Predict { everything, what_fits };

/// Predicts the questions of the rows at `places`, stores the runs, and keeps them in the rows.
/// False when interrupted.
[[nodiscard]] Result<bool> predict_rows(std::vector<SweepRow>& rows,
                                        const std::vector<std::size_t>& places, Predict what,
                                        const SimOptions& options, const Session& session,
                                        RunStore& store);

/// Positions of all rows that have a question.
[[nodiscard]] std::vector<std::size_t> asked(const std::vector<SweepRow>& rows);

[[nodiscard]] Result<ExitCode> run_sweep(const Sweep& sweep, const SimOptions& options,
                                         const Session& session);

}  // namespace mfsdp
