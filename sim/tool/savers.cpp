#include "sim/tool/savers.hpp"

#include <fmt/format.h>

#include <tuple>
#include <utility>

namespace mfsdp {
namespace {

std::string flag_of(MemorySaver saver) {
  switch (saver) {
    case MemorySaver::recompute: return "--recompute";
    case MemorySaver::prefetch: return "--prefetch";
    default: return "--grad-slots";
  }
}

std::string value_of(MemorySaver saver) {
  switch (saver) {
    case MemorySaver::recompute: return "full";
    case MemorySaver::prefetch: return std::to_string(kLeastPrefetch);
    default: return std::to_string(kLeastGradSlots);
  }
}

void apply(MemorySaver saver, PlanConfig& config) {
  switch (saver) {
    case MemorySaver::recompute: config.recompute = {.kind = Recompute::full}; break;
    case MemorySaver::prefetch: config.prefetch = kLeastPrefetch; break;
    default: config.grad_slots = kLeastGradSlots; break;
  }
}

}  // namespace

Variant with_savers(const SimOptions& options, std::span<const MemorySaver> savers) {
  Variant variant{.options = options};
  PlanConfig& config = variant.options.common.config;
  for (const MemorySaver saver : savers) {
    if (!has_choice(options.engine, flag_of(saver))) continue;
    const auto before = std::tuple(config.recompute, config.prefetch, config.grad_slots);
    apply(saver, config);
    if (before == std::tuple(config.recompute, config.prefetch, config.grad_slots)) continue;
    variant.savers.push_back(saver);
    variant.flags +=
        fmt::format("{}{} {}", variant.flags.empty() ? "" : " ", flag_of(saver), value_of(saver));
  }
  return variant;
}

std::vector<Variant> saving_variants(const SimOptions& asked) {
  std::vector<MemorySaver> open;
  for (const MemorySaver saver : kEverySaver)
    if (!contains(asked.given, flag_of(saver))) open.push_back(saver);
  std::vector<Variant> variants{{.options = asked}};
  const auto add = [&](std::span<const MemorySaver> savers) {
    Variant variant = with_savers(asked, savers);
    if (variant.flags != variants.back().flags) variants.push_back(std::move(variant));
  };
  if (!open.empty() && open.front() == MemorySaver::recompute) add(std::span(open).first(1));
  add(open);
  return variants;
}

}  // namespace mfsdp
