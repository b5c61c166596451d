#include "sim/predict/routing.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace mfsdp {
namespace {

constexpr std::int64_t kFactorDigits = 1'000'000;  // digits of --capacity-factor

std::int64_t chosen_rows(const PlanConfig& config) {
  return checked_mul(config.rows_per_microbatch(), config.model.experts_per_token);
}

/// Number of ranks that exchange tokens with each other.
std::int64_t peers_of(const PlanConfig& config) {
  return config.is_expert_parallel() ? config.expert_parallel : 1;
}

std::vector<std::int64_t> blocks_with_experts(const ModelShape& model) {
  std::vector<std::int64_t> blocks;
  for (std::int64_t block = 0; block < model.layers; ++block)
    if (model.has_experts(block)) blocks.push_back(block);
  return blocks;
}

/// Checks the counts of one block, or of all blocks.
Result<void> check_counts(const std::vector<std::int64_t>& counts, const ModelShape& model,
                          const std::string& where) {
  if (std::ssize(counts) != model.experts)
    return fail(where,
                fmt::format("expected {} counts, one for each of the model's experts, got {}",
                            model.experts, counts.size()));
  Int128 sum = 0;
  for (const std::int64_t count : counts) sum += count;
  if (sum == 0) return fail(where, "expected tokens of at least one expert, got 0 of all");
  const auto most = std::ranges::max_element(counts);
  if (Int128{*most} * model.experts_per_token > sum)
    return fail(where,
                fmt::format("expected at most one in {} of all tokens' choices for an expert, as a "
                            "token chooses it once of {} times; expert {} has {} of {}",
                            model.experts_per_token, model.experts_per_token, most - counts.begin(),
                            *most, checked_narrow(sum)));
  return {};
}

/// Checks that there is one list for all blocks with experts, or one list for each of them.
Result<void> check_lists(const Routing& routing, const std::vector<std::int64_t>& blocks,
                         const ModelShape& model) {
  const auto lists = std::ssize(routing.counts);
  if (lists != 1 && lists != std::ssize(blocks))
    return fail(routing.text,
                fmt::format("expected one list for all blocks, or one for each of the model's {} "
                            "with experts, got {}",
                            blocks.size(), lists));
  if (!routing.blocks.empty() && routing.blocks != blocks) {
    const auto [stated, expected] = std::ranges::mismatch(routing.blocks, blocks);
    if (stated == routing.blocks.end())
      return fail(routing.text, fmt::format("has no counts of block {}", *expected));
    return fail(routing.text,
                expected == blocks.end()
                    ? fmt::format("has counts of block {}; expected none", *stated)
                    : fmt::format("has counts of block {}; expected block {} of the model's blocks "
                                  "with experts",
                                  *stated, *expected));
  }
  for (std::size_t i = 0; i < routing.counts.size(); ++i)
    MFSDP_TRY(check_counts(
        routing.counts[i], model,
        lists == 1 ? routing.text : fmt::format("{}: block {}", routing.text, blocks[i])));
  return {};
}

}  // namespace

std::vector<std::int64_t> zipf_weights(double exponent, std::int64_t experts, std::int64_t chosen) {
  constexpr double kAll = 1LL << 40;
  std::vector<double> shares;
  for (std::int64_t e = 0; e < experts; ++e)
    shares.push_back(std::pow(static_cast<double>(e + 1), -exponent));
  // The first `full` experts receive every token; the others share the remaining choices.
  std::int64_t full = 0;
  double rest = std::accumulate(shares.begin(), shares.end(), 0.0);
  const auto share = [&](std::int64_t e) { return shares[static_cast<std::size_t>(e)]; };
  while (full < chosen && share(full) * static_cast<double>(chosen - full) > rest)
    rest -= share(full++);
  const double whole = std::floor(kAll / static_cast<double>(chosen));
  std::vector<std::int64_t> weights;
  for (std::int64_t e = 0; e < experts; ++e)
    weights.push_back(static_cast<std::int64_t>(
        e < full ? whole
                 : std::ceil(share(e) / rest * static_cast<double>(chosen - full) * kAll /
                             static_cast<double>(chosen))));
  return weights;
}

std::vector<std::int64_t> rows_by_weight(const std::vector<std::int64_t>& weights,
                                         std::int64_t chosen) {
  Int128 all = 0;
  for (const std::int64_t weight : weights) all += weight;
  std::vector<std::int64_t> rows;
  Int128 passed = 0;
  std::int64_t given = 0;
  for (const std::int64_t weight : weights) {
    passed += weight;
    const std::int64_t end = checked_narrow((2 * passed * chosen + all) / (2 * all));
    rows.push_back(end - given);
    given = end;
  }
  return rows;
}

Result<std::vector<RoutedBlock>> routed_blocks(const Routing& routing, const PlanConfig& config) {
  const ModelShape& model = config.model;
  if (model.experts == 0)
    return fail("--routing",
                fmt::format("expected none: the model has no experts, got '{}'", routing.text));
  const std::vector<std::int64_t> blocks = blocks_with_experts(model);
  std::vector<std::vector<std::int64_t>> weights = routing.counts;
  if (!weights.empty()) MFSDP_TRY(check_lists(routing, blocks, model));
  if (routing.zipf) weights = {zipf_weights(*routing.zipf, model.experts, model.experts_per_token)};
  if (weights.empty())
    weights = {std::vector<std::int64_t>(static_cast<std::size_t>(model.experts), 1)};
  std::vector<RoutedBlock> routed;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    routed.push_back(
        {.block = blocks[i],
         .rows = rows_by_weight(weights[std::min(i, weights.size() - 1)], chosen_rows(config))});
  return routed;
}

ExpertRows rows_on_rank(const RoutedBlock& block, const PlanConfig& config, std::int64_t rank) {
  ExpertRows on_rank;
  const std::int64_t experts = config.experts_per_rank();
  for (std::int64_t e = 0; e < experts; ++e)
    on_rank.rows.push_back(
        checked_mul(block.rows[static_cast<std::size_t>(rank * experts + e)], peers_of(config)));
  return on_rank;
}

std::int64_t slowest_rank(const RoutedBlock& block, const PlanConfig& config) {
  std::int64_t slowest = 0;
  std::pair<std::int64_t, std::int64_t> most{-1, -1};
  for (std::int64_t rank = 0; rank < peers_of(config); ++rank) {
    const ExpertRows rows = rows_on_rank(block, config, rank);
    const std::pair<std::int64_t, std::int64_t> these{rows.tiled(), rows.total()};
    if (these <= most) continue;
    most = these;
    slowest = rank;
  }
  return slowest;
}

Rational least_capacity_factor(std::int64_t rows, const PlanConfig& config) {
  // ceil(X T K / ep) >= rows where X T K > (rows - 1) ep.
  const Int128 below = Int128{std::max<std::int64_t>(rows, 1) - 1} * config.expert_parallel;
  const Int128 least = below * kFactorDigits / chosen_rows(config) + 1;
  const std::int64_t parts = std::max(checked_narrow(least), kFactorDigits);
  const std::int64_t common = std::gcd(parts, kFactorDigits);
  return {.num = parts / common, .den = kFactorDigits / common};
}

RoutedRows slowest_rows(const std::vector<RoutedBlock>& blocks, const Program& program) {
  std::vector<UnitId> units;
  for (const PlanUnit& unit : program.units)
    if (unit.kind == UnitKind::block) units.push_back(unit.id);
  RoutedRows routed;
  for (const RoutedBlock& block : blocks)
    if (block.block < std::ssize(units))
      routed[units[static_cast<std::size_t>(block.block)]] =
          rows_on_rank(block, program.config, slowest_rank(block, program.config));
  return routed;
}

RoutingReport routing_report(const Routing& routing, const std::vector<RoutedBlock>& blocks,
                             const PlanConfig& config) {
  RoutingReport report{.routing = routing.text, .mean_rows = chosen_rows(config)};
  std::int64_t needed = 0;
  std::int64_t busiest = -1;
  const bool by_block = routing.counts.size() > 1;
  for (const RoutedBlock& block : blocks) {
    const std::int64_t rank = slowest_rank(block, config);
    const ExpertRows rows = rows_on_rank(block, config, rank);
    if (std::pair(rows.tiled(), rows.total()) > std::pair(report.tiled_rows, report.rows)) {
      report.slowest_rank = rank;
      if (by_block) report.slowest_block = block.block;
      report.rows = rows.total();
      report.tiled_rows = rows.tiled();
    }
    const auto most = std::ranges::max_element(block.rows);
    if (*most > busiest) {
      busiest = *most;
      report.busiest_expert = most - block.rows.begin();
    }
    for (std::int64_t r = 0; r < peers_of(config); ++r)
      needed = std::max(needed, rows_on_rank(block, config, r).total() / peers_of(config));
  }
  const auto mean = static_cast<double>(report.mean_rows);
  report.imbalance = static_cast<double>(report.rows) / mean;
  report.expert_imbalance =
      static_cast<double>(busiest) * static_cast<double>(config.model.experts) / mean;
  if (!config.is_expert_parallel()) return report;
  const std::int64_t room = config.rows_per_peer();
  report.room = RoutingRoom{.rows = room,
                            .needed = needed,
                            .holds = needed <= room,
                            .least_factor = least_capacity_factor(needed, config),
                            .least_allocated = {}};
  return report;
}

}  // namespace mfsdp
