#include "sim/search/open_axes.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

/// Sizes of expert-parallel groups: powers of two that divide the experts, up to `most`.
std::vector<std::int64_t> expert_groups(std::int64_t experts, std::int64_t most) {
  std::vector<std::int64_t> sizes = powers_of_two(most);
  std::erase_if(sizes, [&](std::int64_t ranks) { return experts % ranks != 0; });
  return sizes;
}

/// All policies; the partial ones recompute a quarter, half and three quarters of the blocks.
std::vector<RecomputePolicy> recompute_policies(std::int64_t layers, bool partial) {
  std::vector<RecomputePolicy> policies{
      {.kind = Recompute::none}, {.kind = Recompute::selective}, {.kind = Recompute::full}};
  if (!partial) return policies;
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

constexpr std::string_view kAll = "all";
constexpr std::array<std::string_view, 10> kAxes{
    "tp", "cp", "pp", "vpp", "ep", "fp8", "schedule", "placement", "gather", "reduce"};
/// Ranks that share work otherwise, and so read other numbers of sequences.
constexpr std::array<std::string_view, 3> kOfMesh{"tp", "cp", "pp"};

// With axes of the mesh a combination is one of very many. Larger micro-batches, partial
// recomputation and many groups then seldom win: they can be listed.
constexpr std::int64_t kMostMicroBatchOfMesh = 8;
constexpr std::int64_t kMostGroupsOfMesh = 8;

bool is_among(std::string_view name, const auto& names) {
  return std::ranges::find(names, name) != names.end();
}

template <class Enum>
SearchAxis axis_of_names(std::string_view flag) {
  std::vector<Enum> values;
  for (std::size_t i = 0; i < Names<Enum>::values.size(); ++i)
    values.push_back(static_cast<Enum>(i));
  return axis(flag, values);
}

/// The values of an asked axis.
SearchAxis asked_axis(std::string_view name, const ModelShape& shape, std::int64_t per_node) {
  if (name == "tp") return axis("--tp", powers_of_two(per_node));
  if (name == "cp") return axis("--cp", powers_of_two(per_node));
  if (name == "pp") return axis("--pp", powers_of_two(std::min(shape.layers, kMostStages)));
  if (name == "vpp") return axis("--vpp", powers_of_two(kMostMicroBatchOfMesh));
  if (name == "ep") return axis("--ep", expert_groups(shape.experts, shape.experts));
  if (name == "fp8") return axis_of_names<Fp8Recipe>("--fp8");
  if (name == "schedule") return axis_of_names<PipelineSchedule>("--schedule");
  if (name == "placement") return axis_of_names<CollectivePlacement>("--placement");
  return axis_of_names<Transport>(name == "gather" ? "--gather" : "--reduce");
}

/// The names of --axes, each once, with those that "all" stands for.
std::vector<std::string_view> meant(std::span<const std::string> asked, const ModelShape& shape) {
  std::vector<std::string_view> names;
  const bool all = is_among(kAll, asked);
  for (const std::string_view name : kAxes) {
    const bool in_all = is_among(name, kOfMesh) || name == "vpp" || name == "schedule" ||
                        (name == "ep" && shape.experts != 0);
    if (is_among(name, asked) || (all && in_all)) names.push_back(name);
  }
  return names;
}

Result<void> check_asked(const std::vector<std::string_view>& names, const SearchSpace& space,
                         const JobOptions& job, const ModelShape& shape, bool all) {
  for (const std::string_view name : names) {
    const std::string flag = fmt::format("--{}", name);
    if (all || is_open(job, space, flag)) continue;
    return fail("--axes", fmt::format("{} is set by {} too: leave one of them out", name, flag));
  }
  if (is_among("ep", names) && shape.experts == 0)
    return fail("--axes", "expected no ep: the model has no experts");
  const auto of_mesh =
      std::ranges::find_if(names, [](std::string_view name) { return is_among(name, kOfMesh); });
  if (of_mesh != names.end() && is_open(job, space, "--global-batch"))
    return fail("--axes",
                fmt::format("{} needs --global-batch: the numbers of ranks that read other "
                            "sequences differ, and one batch makes steps comparable",
                            *of_mesh));
  return {};
}

}  // namespace

Result<void> check_axis_names(std::span<const std::string> names) {
  for (const std::string& name : names)
    if (name != kAll && !is_among(name, kAxes))
      return fail("--axes", fmt::format("{} is no axis: expected all, or some of {}",
                                        in_quotes(name), fmt::join(kAxes, ", ")));
  return {};
}

Result<SearchSpace> with_open_axes(SearchSpace space, const JobOptions& job,
                                   PredictionRequests& requests,
                                   std::span<const std::string> asked) {
  MFSDP_LET(shape, requests.shape(job));
  MFSDP_LET(groups, group_counts(space, job, requests));
  MFSDP_LET(per_node, requests.gpus_per_node(job));
  const std::vector<std::string_view> names = meant(asked, shape);
  MFSDP_TRY(check_asked(names, space, job, shape, is_among(kAll, asked)));
  const bool many =
      std::ranges::any_of(names, [](std::string_view name) { return is_among(name, kOfMesh); });
  if (many) std::erase_if(groups, [](std::int64_t count) { return count > kMostGroupsOfMesh; });
  const bool is_ours = searches_our_engine(space, job);
  const bool has_strategies = is_ours || !traits_of(job.engine).only_strategy;
  std::vector<SearchAxis> open;
  for (const std::string_view name : names) open.push_back(asked_axis(name, shape, per_node));
  if (has_strategies) open.push_back(axis("--strategy", strategies()));
  if (is_ours)
    open.push_back(axis("--recompute", recompute_policies(shape.layers, !many)));
  else
    open.push_back(axis("--recompute", std::array{RecomputePolicy{.kind = Recompute::none},
                                                  RecomputePolicy{.kind = Recompute::full}}));
  open.push_back(
      axis("--micro-batch", powers_of_two(many ? kMostMicroBatchOfMesh : kMostMicroBatch)));
  if (has_strategies) open.push_back(axis("--outer-dp", groups));
  if (is_ours && shape.experts != 0 && !is_among("ep", names))
    open.push_back(axis("--ep", expert_groups(shape.experts, per_node)));
  const std::size_t most = names.empty() ? kMostAddedCombinations : kMostAskedCombinations;
  std::size_t count = 1;
  for (SearchAxis& added : open) {
    if (!is_open(job, space, added.flag)) continue;
    count *= added.values.size();
    if (count > most)
      return fail(added.flag, fmt::format("the lists make more than {} combinations",
                                          format_count(static_cast<std::int64_t>(most))));
    added.by_default = true;
    space.axes.push_back(std::move(added));
  }
  return space;
}

}  // namespace mfsdp
