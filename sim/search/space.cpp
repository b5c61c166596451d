#include "sim/search/space.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include "core/cli/format.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kMostMicroBatch = 256;
constexpr std::array kStrategies{Strategy::optim_grads_params, Strategy::optim_grads,
                                 Strategy::optim, Strategy::no_shard};

std::vector<std::int64_t> powers_of_two(std::int64_t most) {
  std::vector<std::int64_t> powers;
  for (std::int64_t value = 1; value <= most; value *= 2) powers.push_back(value);
  return powers;
}

std::vector<NamedStrategy> strategies() {
  std::vector<NamedStrategy> named;
  for (const Strategy strategy : kStrategies) named.push_back({.strategy = strategy});
  return named;
}

/// Sizes of expert-parallel groups: powers of two that divide the experts, inside a node.
std::vector<std::int64_t> expert_groups(std::int64_t experts, std::int64_t per_node) {
  std::vector<std::int64_t> sizes = powers_of_two(per_node);
  std::erase_if(sizes, [&](std::int64_t ranks) { return experts % ranks != 0; });
  return sizes;
}

/// All policies; the partial ones recompute a quarter, half and three quarters of the blocks.
std::vector<RecomputePolicy> recompute_policies(std::int64_t layers) {
  std::vector<RecomputePolicy> policies{
      {.kind = Recompute::none}, {.kind = Recompute::selective}, {.kind = Recompute::full}};
  std::int64_t before = 0;
  for (const std::int64_t quarters : {1, 2, 3}) {
    const std::int64_t blocks = layers * quarters / 4;
    if (blocks > before) policies.push_back({.kind = Recompute::full, .full_blocks = blocks});
    before = blocks;
  }
  return policies;
}

/// Numbers of groups of whole nodes: the divisors of the number of nodes, for each number of GPUs.
/// A combination with another number of GPUs, whose nodes a divisor does not divide, is invalid.
Result<std::vector<std::int64_t>> group_counts(const SearchSpace& space, const JobOptions& job,
                                               PredictionRequests& requests) {
  MFSDP_LET(per_node, requests.gpus_per_node(job));
  MFSDP_LET(limit, requests.limit_of_gpus(job));
  std::vector<std::int64_t> worlds{limit.value_or(job.common.gpus)};
  if (const SearchAxis* gpus = space.find("--gpus")) {
    worlds.clear();
    for (const Setting& setting : gpus->values)
      worlds.push_back(std::get<std::int64_t>(setting.value));
  }
  std::set<std::int64_t> counts;
  for (const std::int64_t gpus : worlds) {
    const std::int64_t nodes = std::max<std::int64_t>(gpus / per_node, 1);
    for (std::int64_t n = 1; n <= nodes; ++n)
      if (nodes % n == 0) counts.insert(n);
  }
  return std::vector<std::int64_t>(counts.begin(), counts.end());
}

bool searches_our_engine(const SearchSpace& space, const JobOptions& job) {
  const SearchAxis* engines = space.find("--engine");
  if (engines == nullptr) return traits_of(job.engine).runs_plans;
  return std::ranges::any_of(engines->values, [](const Setting& setting) {
    return traits_of(std::get<EngineKind>(setting.value)).runs_plans;
  });
}

}  // namespace

std::string SearchAxis::text() const {
  std::string text = flag;
  for (const Setting& value : values) text += (&value == values.data() ? " " : ",") + value.text;
  return text;
}

std::size_t SearchSpace::size() const {
  std::size_t count = 1;
  for (const SearchAxis& axis : axes) count *= axis.values.size();
  return count;
}

std::vector<Setting> SearchSpace::combination(std::size_t i) const {
  std::vector<Setting> chosen(axes.size());
  for (std::size_t a = axes.size(); a-- > 0;) {
    chosen[a] = axes[a].values[i % axes[a].values.size()];
    i /= axes[a].values.size();
  }
  return chosen;
}

const SearchAxis* SearchSpace::find(std::string_view flag) const {
  const auto found = std::ranges::find(axes, flag, &SearchAxis::flag);
  return found == axes.end() ? nullptr : &*found;
}

bool is_open(const JobOptions& job, const SearchSpace& space, std::string_view flag) {
  return !contains(job.given, flag) && space.find(flag) == nullptr;
}

Result<SearchSpace> with_open_axes(SearchSpace space, const JobOptions& job,
                                   PredictionRequests& requests) {
  MFSDP_LET(shape, requests.shape(job));
  MFSDP_LET(groups, group_counts(space, job, requests));
  const bool is_ours = searches_our_engine(space, job);
  const bool has_strategies = is_ours || !traits_of(job.engine).only_strategy;
  std::vector<SearchAxis> open;
  if (has_strategies) open.push_back(axis("--strategy", strategies()));
  if (is_ours)
    open.push_back(axis("--recompute", recompute_policies(shape.layers)));
  else
    open.push_back(axis("--recompute", std::array{RecomputePolicy{.kind = Recompute::none},
                                                  RecomputePolicy{.kind = Recompute::full}}));
  open.push_back(axis("--micro-batch", powers_of_two(kMostMicroBatch)));
  if (has_strategies) open.push_back(axis("--outer-dp", groups));
  if (is_ours && shape.experts != 0) {
    MFSDP_LET(per_node, requests.gpus_per_node(job));
    open.push_back(axis("--ep", expert_groups(shape.experts, per_node)));
  }
  std::size_t count = 1;
  for (SearchAxis& added : open) {
    if (!is_open(job, space, added.flag)) continue;
    count *= added.values.size();
    if (count > kMostAddedCombinations)
      return fail(added.flag, fmt::format("the lists make more than {} combinations",
                                          format_count(std::int64_t{kMostAddedCombinations})));
    added.by_default = true;
    space.axes.push_back(std::move(added));
  }
  return space;
}

}  // namespace mfsdp
