// --tokens and --price: what a whole training takes.
#pragma once

#include "core/base/error.hpp"
#include "core/cli/sim_options.hpp"
#include "reports/record/result.hpp"
#include "reports/tool/session.hpp"

namespace mfsdp {

/// Price of one GPU of the run's kind for one hour; none where no --price covers it.
[[nodiscard]] std::optional<double> price_of(const RunHead& run,
                                             const std::vector<GpuPrice>& prices);

/// Once there are prices there must be one for the GPU, and all must name GPUs of the catalogue or
/// this one.
[[nodiscard]] Result<void> check_prices(const SimOptions& options, const std::string& gpu,
                                        const Session& session);

/// Fills in run.training where --tokens asks for it.
void estimate_training(PredictedRun& run, const SimOptions& options);

/// Money (GPU-hours where there are no prices) for 10^12 tokens: what `cheapest` compares.
[[nodiscard]] double cost_per_trillion(const RunFigures& run, const std::vector<GpuPrice>& prices);

}  // namespace mfsdp
