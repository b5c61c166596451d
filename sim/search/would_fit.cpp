#include "sim/search/would_fit.hpp"

#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "sim/search/expert_capacity.hpp"
#include "sim/search/memory_settings.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kMostTimesGpus = 64;

/// The prediction of a variant, if it surely fits.
std::optional<WouldFit> fitting(const Variant& variant, PredictionRequests& requests) {
  const auto request = requests.read(variant.job);
  if (!request || lack_of_capacity(*request) || cannot_fit(*request)) return std::nullopt;
  const auto ready = with_program(*request);
  if (!ready || !fits(*ready)) return std::nullopt;
  const auto prediction = predict(*ready);
  if (!prediction || !passes_fit(prediction->run, false)) return std::nullopt;
  const PredictedRun& run = prediction->run;
  return WouldFit{.flags = flags_text(variant.settings),
                  .memory = run.memory.deciding(),
                  .step = run.time.step,
                  .tokens = run.config.global_tokens()};
}

/// The variant with further settings.
Variant extended(const Variant& base, std::span<const Setting> settings) {
  Variant variant{.job = with_settings(base.job, settings), .settings = base.settings};
  variant.settings.insert(variant.settings.end(), settings.begin(), settings.end());
  return variant;
}

/// The variant with those of the settings that it does not have.
Variant saving(const Variant& base, std::span<const Setting> settings) {
  return extended(base, with_new_settings(base.job, settings).settings);
}

/// Full sharding, over all ranks.
Variant more_sharded(const Variant& base, const PlanConfig& config) {
  std::vector<Setting> settings;
  if (config.strategy != Strategy::optim_grads_params && !traits_of(base.job.engine).only_strategy)
    settings.push_back(
        setting("--strategy", NamedStrategy{.strategy = Strategy::optim_grads_params}));
  const bool has_groups = base.job.common.outer_dp > 1;
  if (has_groups) settings.push_back(setting("--outer-dp", std::int64_t{1}));
  Variant variant = extended(base, settings);
  if (has_groups) {  // one group has no strategy over groups
    variant.job.common.outer_asked.reset();
    variant.job.common.config.outer_strategy = Strategy::no_shard;
  }
  return variant;
}

/// Smaller micro-batches, with more of them in the same step, the largest first.
std::vector<Variant> smaller_batches(const Variant& base, const PlanConfig& config) {
  std::vector<Variant> variants;
  for (std::int64_t parts = 2; config.micro_batch % parts == 0; parts *= 2)
    variants.push_back(
        extended(base, std::array{setting("--micro-batch", config.micro_batch / parts),
                                  setting("--global-batch", config.global_batch())}));
  return variants;
}

/// Two, four, ... times as many GPUs.
std::vector<Variant> more_gpus(const Variant& base, const PlanConfig& config) {
  std::vector<Variant> variants;
  for (std::int64_t times = 2; times <= kMostTimesGpus; times *= 2)
    variants.push_back(
        extended(base, std::array{setting("--gpus", config.mesh.world_size() * times)}));
  return variants;
}

class FitSuggestions {
 public:
  explicit FitSuggestions(PredictionRequests& requests) : requests_(requests) {}

  /// Adds the first of these that fits and was not tried before.
  bool add_first(const std::vector<Variant>& variants) {
    for (const Variant& variant : variants) {
      const std::string flags = flags_text(variant.settings);
      if (flags.empty() || contains(tried_, flags)) continue;
      tried_.push_back(flags);
      if (auto found = fitting(variant, requests_)) {
        found_.push_back(*std::move(found));
        return true;
      }
    }
    return false;
  }
  [[nodiscard]] std::vector<WouldFit> take() { return std::move(found_); }
  [[nodiscard]] bool is_empty() const { return found_.empty(); }

 private:
  PredictionRequests& requests_;
  std::vector<std::string> tried_;
  std::vector<WouldFit> found_;
};

}  // namespace

std::vector<WouldFit> would_fit(const JobOptions& job, const PredictedRun& run,
                                PredictionRequests& requests) {
  if (job.common.plan) return {};
  const Variant base{.job = job};
  const PlanConfig& config = run.config;
  FitSuggestions suggestions(requests);
  const Variant recomputing = saving(base, std::array{full_recomputation()});
  const Variant least = saving(base, memory_settings());
  // The setting that costs the least time comes first; both together only if neither suffices.
  const bool slots_suffice = suggestions.add_first({saving(base, least_slots())});
  const bool recomputation_suffices = suggestions.add_first({recomputing});
  if (!slots_suffice && !recomputation_suffices) suggestions.add_first({least});
  suggestions.add_first({more_sharded(base, config)});
  suggestions.add_first(smaller_batches(base, config));
  suggestions.add_first(more_gpus(base, config));
  if (!suggestions.is_empty()) return suggestions.take();
  const auto with_the_rest = [&](const Variant& variant) {
    Variant all = more_sharded(variant, config);
    auto smaller = smaller_batches(all, config);
    return smaller.empty() ? all : std::move(smaller.back());
  };
  const Variant all = with_the_rest(least);
  // Fewer slots slow the step further: only if recomputation does not suffice.
  if (!suggestions.add_first({all}) &&
      !suggestions.add_first(more_gpus(with_the_rest(recomputing), config)))
    suggestions.add_first(more_gpus(all, config));
  return suggestions.take();
}

}  // namespace mfsdp
