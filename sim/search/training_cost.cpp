#include "sim/search/training_cost.hpp"

#include <fmt/format.h>

#include "sim/hardware/catalogue.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {
namespace {

constexpr double kSecondsPerHour = 3600;

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

TrainingEstimate training_of(const RunFigures& run, const std::vector<GpuPrice>& prices,
                             std::int64_t tokens) {
  TrainingEstimate training;
  training.tokens = tokens;
  training.seconds = static_cast<double>(tokens) / tokens_per_second(run);
  training.gpu_hours = training.seconds / kSecondsPerHour * static_cast<double>(run.cluster.gpus);
  if (const auto price = price_of(run, prices)) training.cost = training.gpu_hours * *price;
  return training;
}

double cost_of(const RunFigures& run, const std::vector<GpuPrice>& prices) {
  const TrainingEstimate training = training_of(run, prices, kPricedTokens);
  return training.cost.value_or(training.gpu_hours);
}

void estimate_training(PredictedRun& run, const std::vector<GpuPrice>& prices,
                       std::optional<std::int64_t> tokens) {
  if (const auto price = price_of(run, prices))
    run.facts.push_back({.topic = "simulation", .name = "price_per_gpu_hour", .value = *price});
  if (tokens && tokens_per_second(run) > 0) run.training = training_of(run, prices, *tokens);
}

}  // namespace mfsdp
