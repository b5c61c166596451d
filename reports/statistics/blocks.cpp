#include "reports/statistics/blocks.hpp"

#include <algorithm>
#include <cmath>

#include "reports/statistics/sample.hpp"

namespace mfsdp {
namespace {

Blocks cut_into(std::span<const double> series, std::size_t steps) {
  Blocks blocks;
  blocks.steps = steps;
  for (std::size_t at = 0; at + steps <= series.size(); at += steps)
    blocks.means.push_back(mean_of(series.subspan(at, steps)));
  blocks.autocorrelation = autocorrelation_of(blocks.means);
  const auto count = static_cast<double>(blocks.means.size());
  blocks.independent = blocks.autocorrelation <= 2 / std::sqrt(std::max(count, 1.0));
  return blocks;
}

}  // namespace

Blocks blocks_of(std::span<const double> series, const BlockRule& rule) {
  if (series.size() <= rule.warm_up) return {.means = {}, .steps = rule.steps};
  series = series.subspan(rule.warm_up);
  const std::size_t steps = std::max(rule.steps, (series.size() + rule.most - 1) / rule.most);
  Blocks blocks = cut_into(series, steps);
  while (!blocks.independent && series.size() / (2 * blocks.steps) >= rule.least)
    blocks = cut_into(series, 2 * blocks.steps);
  return blocks;
}

}  // namespace mfsdp
