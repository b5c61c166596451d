// Time and cost of a whole training, from the prediction of one step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"
#include "sim/search/job_options.hpp"

namespace mfsdp {

inline constexpr double kSecondsPerDay = 86400;

/// Tokens for which costs are compared and named where the caller names no number.
inline constexpr std::int64_t kPricedTokens = 1'000'000'000'000;

/// The rate of all GPUs together.
[[nodiscard]] double tokens_per_second(const RunFigures& run);

/// Price of one GPU of the run's kind for one hour; none where no price covers it.
[[nodiscard]] std::optional<double> price_of(const RunHead& run,
                                             const std::vector<GpuPrice>& prices);

/// Error unless there are no prices, or one covers `gpu` and each names `gpu` or a GPU of the
/// catalogue, the folder `gpus`.
[[nodiscard]] Result<void> check_prices(const std::vector<GpuPrice>& prices, const std::string& gpu,
                                        const std::filesystem::path& gpus);

/// Time of training on the given number of tokens, and its cost where a price covers the run's GPU.
/// Requires that the run has a speed.
[[nodiscard]] TrainingEstimate training_of(const RunFigures& run,
                                           const std::vector<GpuPrice>& prices,
                                           std::int64_t tokens);

/// Cost of training on kPricedTokens: money, or GPU-hours where no price is known.
[[nodiscard]] double cost_of(const RunFigures& run, const std::vector<GpuPrice>& prices);

/// Sets run.training where `tokens` is a number, and records the price.
void estimate_training(PredictedRun& run, const std::vector<GpuPrice>& prices,
                       std::optional<std::int64_t> tokens);

}  // namespace mfsdp
