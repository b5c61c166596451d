#include "sim/tool/would_fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "sim/tool/room.hpp"
#include "sim/tool/savers.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kMostTimesGpus = 64;

/// Options and the flags in which they are not what was asked.
struct Setting {
  SimOptions options;
  std::string flags;
};

/// The prediction with that setting, if it surely fits.
std::optional<WouldFit> fitting(const Setting& setting, Asker& asker) {
  const auto question = asker.question(setting.options);
  if (!question || lack_of_room(*question) || cannot_fit(*question)) return std::nullopt;
  const auto ready = built(*question);
  if (!ready || !fits(*ready)) return std::nullopt;
  const auto prediction = answer(*ready);
  if (!prediction || !passes_fit(prediction->run, false)) return std::nullopt;
  const PredictedRun& run = prediction->run;
  return WouldFit{
      .flags = setting.flags,
      .memory = run.memory.deciding(),
      .step = run.time.step,
      .tokens = checked_mul(run.config.tokens_per_step(), run.config.mesh.world_size())};
}

Setting joined(const Setting& base, SimOptions options, const std::string& flags) {
  const std::string blank = base.flags.empty() || flags.empty() ? "" : " ";
  return {.options = std::move(options), .flags = base.flags + blank + flags};
}

Setting with(const Setting& base, std::span<const MemorySaver> savers) {
  Variant variant = with_savers(base.options, savers);
  return joined(base, std::move(variant.options), variant.flags);
}

/// Savers that cost the least time first; together only where neither is enough.
std::vector<Setting> savings(const Setting& base) {
  constexpr std::array kOrder{MemorySaver::prefetch, MemorySaver::grad_slots};
  constexpr std::array kActivations{MemorySaver::recompute};
  return {with(base, kOrder), with(base, kActivations), with(base, kEverySaver)};
}

/// Sharding over all ranks, of all that can be sharded.
Setting more_sharded(const Setting& base, const PlanConfig& config) {
  SimOptions options = base.options;
  std::string flags;
  if (config.strategy != Strategy::optim_grads_params && !traits_of(options.engine).shards_states_alone) {
    options.common.config.strategy = Strategy::optim_grads_params;
    flags = fmt::format("--strategy {}", to_string(Strategy::optim_grads_params));
  }
  if (options.common.outer_dp > 1) {
    options.common.outer_dp = 1;
    options.common.outer_asked.reset();
    options.common.config.outer_strategy = Strategy::no_shard;
    flags += flags.empty() ? "--outer-dp 1" : " --outer-dp 1";
  }
  return joined(base, std::move(options), flags);
}

/// Smaller micro-batches that make the same step of several, the largest first.
std::vector<Setting> smaller_batches(const Setting& base, const PlanConfig& config) {
  std::vector<Setting> settings;
  for (std::int64_t parts = 2; parts <= config.micro_batch; parts *= 2) {
    if (config.micro_batch % parts != 0) break;
    SimOptions options = base.options;
    options.common.config.micro_batch = config.micro_batch / parts;
    options.common.global_batch = config.global_batch();
    options.common.batch_tokens.reset();
    settings.push_back(joined(base, std::move(options),
                              fmt::format("--micro-batch {} --global-batch {}",
                                          config.micro_batch / parts, config.global_batch())));
  }
  return settings;
}

/// Twice, four times, ... as many GPUs.
std::vector<Setting> more_gpus(const Setting& base, const PlanConfig& config) {
  std::vector<Setting> settings;
  for (std::int64_t times = 2; times <= kMostTimesGpus; times *= 2) {
    SimOptions options = base.options;
    options.common.gpus = config.mesh.world_size() * times;
    options.given.emplace_back("--gpus");
    const std::string flags = fmt::format("--gpus {}", options.common.gpus);
    settings.push_back(joined(base, std::move(options), flags));
  }
  return settings;
}

class Search {
 public:
  explicit Search(Asker& asker) : asker_(asker) {}

  /// Keeps the first of these that fits.
  bool first_of(const std::vector<Setting>& settings) {
    for (const Setting& setting : settings) {
      if (setting.flags.empty() || contains(tried_, setting.flags)) continue;
      tried_.push_back(setting.flags);
      if (auto found = fitting(setting, asker_)) {
        found_.push_back(*std::move(found));
        return true;
      }
    }
    return false;
  }
  [[nodiscard]] std::vector<WouldFit> take() { return std::move(found_); }
  [[nodiscard]] bool is_empty() const { return found_.empty(); }

 private:
  Asker& asker_;
  std::vector<std::string> tried_;
  std::vector<WouldFit> found_;
};

}  // namespace

std::vector<WouldFit> would_fit(const SimOptions& asked, const PredictedRun& run, Asker& asker) {
  if (asked.common.plan) return {};
  const Setting base{.options = asked, .flags = {}};
  const PlanConfig& config = run.config;
  Search search(asker);
  const std::vector<Setting> saving = savings(base);
  const bool in_order = search.first_of({saving[0]});
  const bool recomputing = search.first_of({saving[1]});
  if (!in_order && !recomputing) search.first_of({saving[2]});
  search.first_of({more_sharded(base, config)});
  search.first_of(smaller_batches(base, config));
  search.first_of(more_gpus(base, config));
  if (!search.is_empty()) return search.take();
  const auto with_the_rest = [&](const Setting& saver) {
    Setting all = more_sharded(saver, config);
    auto smaller = smaller_batches(all, config);
    return smaller.empty() ? all : std::move(smaller.back());
  };
  const Setting all = with_the_rest(saving[2]);
  // What slows the step further is named only where recomputation is not enough.
  if (!search.first_of({all}) && !search.first_of(more_gpus(with_the_rest(saving[1]), config)))
    search.first_of(more_gpus(all, config));
  return search.take();
}

}  // namespace mfsdp
