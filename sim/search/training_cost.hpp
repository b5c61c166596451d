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

/// Seconds of training between saves: as given, or the best by Daly (2006), from the job's mean time
/// between failures M = mtbf_hours / gpus and the time d of a save:
///   sqrt(2 d M) (1 + sqrt(d / 2M) / 3 + d / 18M) - d, and M where d >= 2M
[[nodiscard]] double save_interval(std::int64_t gpus, const Failures& failures);

/// The part of the time in which a job makes progress that lasts, between failures that come at
/// random with mean M; R: restart_time, t: the interval, d: save_time (Daly's complete model):
///   t / (M exp(R / M) (exp((t + d) / M) - 1))
/// 1 where nothing fails.
[[nodiscard]] double goodput_of(std::int64_t gpus, const Failures& failures);

/// "failures of one GPU every 50,000 hours, ...": what days and costs assume. Empty where nothing
/// fails.
[[nodiscard]] std::string failures_text(std::int64_t gpus, const Failures& failures);

/// Time of training on the given number of tokens, and its cost where a price covers the run's GPU.
/// Requires that the run has a speed.
[[nodiscard]] TrainingEstimate training_of(const RunFigures& run,
                                           const std::vector<GpuPrice>& prices, std::int64_t tokens,
                                           const Failures& failures = {});

/// Cost of training on kPricedTokens: money, or GPU-hours where no price is known.
[[nodiscard]] double cost_of(const RunFigures& run, const std::vector<GpuPrice>& prices,
                             const Failures& failures = {});

/// Sets run.training where `tokens` is a number, and records the price and the failures.
void estimate_training(PredictedRun& run, const std::vector<GpuPrice>& prices,
                       std::optional<std::int64_t> tokens, const Failures& failures = {});

}  // namespace mfsdp
