#include "sim/search/training_cost.hpp"

#include <fmt/format.h>

#include <cmath>
#include <utility>

#include "core/cli/format.hpp"
#include "sim/hardware/catalogue.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {
namespace {

constexpr double kSecondsPerHour = 3600;

/// Seconds between failures of a job.
double mean_time(std::int64_t gpus, const Failures& failures) {
  return *failures.mtbf_hours * kSecondsPerHour / static_cast<double>(gpus);
}

std::string seconds_text(double seconds) {
  constexpr double kSecondsPerMinute = 60;
  constexpr double kFewMinutes = 600;
  constexpr double kFewHours = 7'200;
  if (seconds < kFewMinutes) return format_real(seconds, 0) + " s";
  if (seconds < kFewHours) return format_real(seconds / kSecondsPerMinute, 0) + " min";
  return format_real(seconds / kSecondsPerHour, 0) + " h";
}

}  // namespace

double tokens_per_second(const RunFigures& run) {
  return run.time.tokens_per_second_per_gpu * static_cast<double>(run.cluster.gpus);
}

std::optional<double> price_of(const RunHead& run, const std::vector<GpuPrice>& prices) {
  for (const GpuPrice& price : prices)
    if (price.gpu.empty() || price.gpu == run.cluster.gpu) return price.price.value();
  return std::nullopt;
}

Result<void> check_prices(const std::vector<GpuPrice>& prices, const std::string& gpu,
                          const std::filesystem::path& gpus) {
  if (prices.empty()) return {};
  MFSDP_LET(names, list_gpus(gpus));
  bool covered = false;
  for (const GpuPrice& price : prices) {
    covered |= price.gpu.empty() || price.gpu == gpu;
    if (price.gpu.empty() || price.gpu == gpu || contains(names, price.gpu)) continue;
    const std::string meant = meant_entry(price.gpu, names);
    return fail("--price", fmt::format("unknown GPU {}; {} (--list-gpus)", in_quotes(price.gpu),
                                       meant.empty() ? "the catalogue has nothing like it"
                                                     : fmt::format("the closest is '{}'", meant)));
  }
  if (!covered) return fail("--price", "has none for the GPU " + in_quotes(gpu));
  return {};
}

double save_interval(std::int64_t gpus, const Failures& failures) {
  if (failures.save_interval) return *failures.save_interval;
  const double mean = mean_time(gpus, failures);
  const double save = failures.save_time;
  if (save >= 2 * mean) return mean;
  const double part = save / (2 * mean);
  return std::sqrt(2 * save * mean) * (1 + std::sqrt(part) / 3 + part / 9) - save;
}

double goodput_of(std::int64_t gpus, const Failures& failures) {
  if (!failures.mtbf_hours) return 1;
  const double mean = mean_time(gpus, failures);
  const double interval = save_interval(gpus, failures);
  return interval / (mean * std::exp(failures.restart_time / mean) *
                     std::expm1((interval + failures.save_time) / mean));
}

std::string failures_text(std::int64_t gpus, const Failures& failures) {
  if (!failures.mtbf_hours) return "";
  return fmt::format(
      "a GPU fails every {} hours, so one of {} every {}; a save every {} takes {}, a restart {}: "
      "{} of the time is progress that lasts",
      format_real(*failures.mtbf_hours, 0), format_count(gpus),
      seconds_text(mean_time(gpus, failures)), seconds_text(save_interval(gpus, failures)),
      seconds_text(failures.save_time), seconds_text(failures.restart_time),
      format_percent(goodput_of(gpus, failures)));
}

TrainingEstimate training_of(const RunFigures& run, const std::vector<GpuPrice>& prices,
                             std::int64_t tokens, const Failures& failures) {
  TrainingEstimate training;
  training.tokens = tokens;
  training.seconds =
      static_cast<double>(tokens) / tokens_per_second(run) / goodput_of(run.cluster.gpus, failures);
  training.gpu_hours = training.seconds / kSecondsPerHour * static_cast<double>(run.cluster.gpus);
  if (const auto price = price_of(run, prices)) training.cost = training.gpu_hours * *price;
  return training;
}

double cost_of(const RunFigures& run, const std::vector<GpuPrice>& prices,
               const Failures& failures) {
  const TrainingEstimate training = training_of(run, prices, kPricedTokens, failures);
  return training.cost.value_or(training.gpu_hours);
}

void estimate_training(PredictedRun& run, const std::vector<GpuPrice>& prices,
                       std::optional<std::int64_t> tokens, const Failures& failures) {
  if (const auto price = price_of(run, prices))
    run.facts.push_back({.topic = "simulation", .name = "price_per_gpu_hour", .value = *price});
  if (std::string text = failures_text(run.cluster.gpus, failures); !text.empty())
    run.facts.push_back({.topic = "simulation", .name = "failures", .value = std::move(text)});
  if (tokens && tokens_per_second(run) > 0)
    run.training = training_of(run, prices, *tokens, failures);
}

}  // namespace mfsdp
