#include "sim/search/memory_settings.hpp"

#include <array>
#include <cstdint>
#include <tuple>
#include <utility>

namespace mfsdp {
namespace {

constexpr std::int64_t kLeastPrefetch = 0;
constexpr std::int64_t kLeastGradSlots = 1;

bool changes_memory(const JobOptions& job, const JobOptions& other) {
  const auto memory = [](const PlanConfig& config) {
    return std::tuple(config.recompute, config.prefetch, config.grad_slots);
  };
  return memory(job.common.config) != memory(other.common.config);
}

}  // namespace

Setting full_recomputation() {
  return setting("--recompute", RecomputePolicy{.kind = Recompute::full});
}

std::vector<Setting> least_slots() {
  return {setting("--prefetch", kLeastPrefetch), setting("--grad-slots", kLeastGradSlots)};
}

std::vector<Setting> memory_settings() {
  std::vector<Setting> all = least_slots();
  all.insert(all.begin(), full_recomputation());
  return all;
}

Variant with_new_settings(const JobOptions& job, std::span<const Setting> settings) {
  Variant variant{.job = job};
  for (const Setting& setting : settings) {
    if (!has_choice(job.engine, setting.flag)) continue;
    JobOptions changed = variant.job;
    apply(setting, changed);
    if (!changes_memory(variant.job, changed)) continue;
    variant.job = std::move(changed);
    variant.settings.push_back(setting);
  }
  return variant;
}

std::vector<Variant> memory_variants(const JobOptions& job) {
  std::vector<Setting> open = memory_settings();
  std::erase_if(open, [&](const Setting& one) { return contains(job.given, one.flag); });
  std::vector<Variant> variants{{.job = job}};
  const auto add = [&](std::span<const Setting> settings) {
    Variant variant = with_new_settings(job, settings);
    if (variant.settings.size() > variants.back().settings.size())
      variants.push_back(std::move(variant));
  };
  if (!open.empty() && open.front().flag == "--recompute") add(std::span(open).first(1));
  add(open);
  return variants;
}

std::vector<SearchAxis> memory_axes(const JobOptions& job, const SearchSpace& space) {
  if (!traits_of(job.engine).runs_plans || !is_open(job, space, "--engine")) return {};
  const PlanConfig usual;
  std::vector<SearchAxis> axes{axis("--prefetch", std::array{usual.prefetch, kLeastPrefetch}),
                               axis("--grad-slots", std::array{usual.grad_slots, kLeastGradSlots})};
  std::erase_if(axes, [&](const SearchAxis& one) { return !is_open(job, space, one.flag); });
  return axes;
}

}  // namespace mfsdp
