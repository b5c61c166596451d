// --tokens and --price: what a whole training takes.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"
#include "reports/tool/session.hpp"
#include "sim/tool/sim_options.hpp"

namespace mfsdp {

inline constexpr double kSecondsPerDay = 86400;

/// Price of one GPU of the run's kind for one hour; none where no --price covers it.
[[nodiscard]] std::optional<double> price_of(const RunHead& run,
                                             const std::vector<GpuPrice>& prices);

/// Once there are prices there must be one for the GPU, and all must name GPUs of the catalogue or
/// this one.
[[nodiscard]] Result<void> check_prices(const SimOptions& options, const std::string& gpu,
                                        const Session& session);

/// What training on that many tokens takes: a cost where a price covers the run's GPU. Requires a
/// run with a speed.
[[nodiscard]] TrainingEstimate training_of(const RunFigures& run, const SimOptions& options,
                                           std::int64_t tokens);

/// Fills in run.training where --tokens asks for it.
void estimate_training(PredictedRun& run, const SimOptions& options);

}  // namespace mfsdp
