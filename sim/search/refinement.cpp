#include "sim/search/refinement.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "core/plan/config_fields.hpp"

namespace mfsdp {
namespace {

constexpr std::string_view kExpertStrategy = "--expert-strategy";

std::vector<SearchAxis> axes_of(RefinementKind kind) {
  using Counts = std::array<std::int64_t, 3>;
  if (kind == RefinementKind::transports)
    return {axis("--placement",
                 std::array{CollectivePlacement::earliest, CollectivePlacement::attention,
                            CollectivePlacement::gathers}),
            axis("--gather", std::array{Transport::nccl, Transport::copy_engine}),
            axis("--reduce", std::array{Transport::nccl, Transport::symmetric})};
  return {axis("--prefetch", Counts{1, 2, 3}), axis("--grad-slots", Counts{2, 3, 4}),
          axis(kExpertStrategy, std::array{Strategy::optim_grads_params, Strategy::optim_grads,
                                           Strategy::optim, Strategy::no_shard})};
}

bool is_ours(const Candidate& candidate) {
  return candidate.run && candidate.request && traits_of(candidate.request->engine).runs_plans;
}

/// Whether a predicted combination may have another value: of collectives if there are any, of
/// transports on the GPUs of a node, of experts' strategy if several ranks have the same experts.
bool has_choice_of(const std::string& flag, const Candidate& candidate) {
  const PlanConfig& config = candidate.run->config;
  const Cluster& cluster = candidate.request->costs->cluster();
  if (flag == "--placement") return cluster.gpus > 1;
  if (flag == "--gather" || flag == "--reduce")
    return cluster.gpus > 1 && cluster.gpu.link == LinkKind::nvlink;
  return flag != kExpertStrategy ||
         (config.is_expert_parallel() && config.mesh.size(Axis::expt_dp) > 1 &&
          config.outer_strategy != Strategy::optim);
}

/// The value in the combination's configuration; empty if it has no such choice.
std::string configured_text(const std::string& flag, const Candidate& candidate) {
  if (!is_ours(candidate) || !has_choice_of(flag, candidate)) return {};
  const PlanConfig& config = candidate.run->config;
  if (flag == kExpertStrategy) return std::string(to_string(config.strategy_of_experts()));
  std::string text;
  for_each_field(config, [&](const ConfigField& field, const auto& value) {
    if (field.flag == flag) text = flag_text(value);
  });
  return text;
}

/// Positions of the combinations to vary, best first.
std::vector<std::size_t> bases_of(RefinementKind kind, const std::vector<Candidate>& candidates,
                                  const std::vector<std::size_t>& ranked) {
  std::vector<std::size_t> places;
  std::vector<Strategy> seen;
  for (const std::size_t place : ranked) {
    if (!is_ours(candidates[place])) continue;
    if (kind == RefinementKind::schedule) {
      if (places.size() < kRefined) places.push_back(place);
      continue;
    }
    const Strategy strategy = candidates[place].run->config.strategy;
    if (std::ranges::find(seen, strategy) != seen.end()) continue;
    seen.push_back(strategy);
    places.push_back(place);
  }
  return places;
}

/// The settings that every variation of a combination has; a global batch is set once.
std::vector<Setting> base_settings(const Candidate& base, std::optional<std::int64_t> batch) {
  std::vector<Setting> settings = base.settings;
  if (!batch) return settings;
  std::erase_if(settings, [](const Setting& one) { return one.flag == "--global-batch"; });
  settings.push_back(setting("--global-batch", *batch));
  return settings;
}

}  // namespace

Result<Refinement> refine(RefinementKind kind, const JobOptions& job, const SearchSpace& space,
                          const std::vector<Candidate>& candidates,
                          const std::vector<std::size_t>& ranked, std::optional<std::int64_t> batch,
                          PredictionRequests& requests, const SearchHooks& hooks) {
  Refinement refinement{.kind = kind, .axes = {}, .refined = 0, .candidates = {}, .bases = {}};
  const std::vector<std::size_t> bases = bases_of(kind, candidates, ranked);
  refinement.refined = bases.size();
  for (SearchAxis& axis : axes_of(kind))
    if (is_open(job, space, axis.flag) && std::ranges::any_of(bases, [&](std::size_t place) {
          return has_choice_of(axis.flag, candidates[place]);
        }))
      refinement.axes.push_back(std::move(axis));
  for (const std::size_t place : bases) {
    const Candidate& base = candidates[place];
    SearchSpace choices;
    for (const SearchAxis& axis : refinement.axes)
      if (has_choice_of(axis.flag, base)) choices.axes.push_back(axis);
    for (std::size_t i = 0; i < choices.size() && !hooks.stop(); ++i) {
      std::vector<Setting> changed = choices.combination(i);
      std::erase_if(
          changed, [&](const Setting& one) { return one.text == configured_text(one.flag, base); });
      if (changed.empty()) continue;  // the combination itself
      std::vector<Setting> settings = base_settings(base, batch);
      settings.insert(settings.end(), changed.begin(), changed.end());
      MFSDP_LET(candidate, make_candidate(job, std::move(settings), requests));
      refinement.candidates.push_back(std::move(candidate));
      refinement.bases.push_back(place);
    }
  }
  return refinement;
}

void adopt(Refinement& refinement, const std::vector<std::size_t>& places, SearchSpace& space,
           std::vector<Candidate>& candidates) {
  for (const SearchAxis& axis : refinement.axes)
    if (std::ranges::any_of(places, [&](std::size_t place) {
          return refinement.candidates[place].find(axis.flag) != nullptr;
        }))
      space.axes.push_back(axis);
  for (const std::size_t place : places)
    candidates.push_back(std::move(refinement.candidates[place]));
}

std::string value_text(const Candidate& candidate, const SearchAxis& axis) {
  if (const Setting* setting = candidate.find(axis.flag)) return setting->text;
  return configured_text(axis.flag, candidate);
}

}  // namespace mfsdp
