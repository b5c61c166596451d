// How a router spreads tokens over experts, and what follows from it for the ranks that have them.
//
// All ranks' tokens are spread alike, in every micro-batch. Of a rank's T tokens, K choices each:
//   rows of an expert  = T K times its share, rounded so that the rows of any neighbours are within
//                        one of theirs
//   rows on a rank     = those of its experts, from each of the ranks that experts are dealt out to
// Ranks meet at every exchange, so a block takes as long as on the rank that is slowest in it: the
// one with the most rows in whole tiles.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/rational.hpp"
#include "core/plan/config.hpp"
#include "core/plan/plan.hpp"
#include "reports/record/result.hpp"
#include "sim/cost/expert_rows.hpp"

namespace mfsdp {

/// As it is asked for; balanced where nothing more is said.
struct Routing {
  std::string text = "balanced";
  std::optional<double> zipf;  ///< shares as 1 / (e + 1)^this
  /// Tokens of each expert, as they were counted: one list for all blocks, or one for each block
  /// with experts.
  std::vector<std::vector<std::int64_t>> counts;
  std::vector<std::int64_t> blocks;  ///< of each list, where they are stated

  [[nodiscard]] bool is_balanced() const { return !zipf && counts.empty(); }
};

/// What one rank's tokens choose in one block and micro-batch.
struct RoutedBlock {
  std::int64_t block = 0;
  std::vector<std::int64_t> rows;  ///< of each of the model's experts; T K together
};

/// A routing, and what it comes to in a configuration.
struct RoutedModel {
  Routing routing;
  std::vector<RoutedBlock> blocks;  ///< routed_blocks()
};

/// Of each block with experts. Errors: no experts; counts of other experts or blocks, none at all,
/// or more for one expert than it can have, which is each token once.
[[nodiscard]] Result<std::vector<RoutedBlock>> routed_blocks(const Routing& routing,
                                                             const PlanConfig& config);

/// Of a Zipf's law over `experts`, `chosen` of them a token's: in parts of about 2^40. No expert
/// has more than 1 / chosen of all, each token once; what is above is the others', in proportion.
[[nodiscard]] std::vector<std::int64_t> zipf_weights(double exponent, std::int64_t experts,
                                                     std::int64_t chosen);

/// `chosen` rows by weights, not all of them 0.
[[nodiscard]] std::vector<std::int64_t> rows_by_weight(const std::vector<std::int64_t>& weights,
                                                       std::int64_t chosen);

/// Rows that come to a rank along ep, whose experts are neighbours.
[[nodiscard]] ExpertRows rows_on_rank(const RoutedBlock& block, const PlanConfig& config,
                                      std::int64_t rank);

/// The rank that is slowest: of two alike the first.
[[nodiscard]] std::int64_t slowest_rank(const RoutedBlock& block, const PlanConfig& config);

/// The least --capacity-factor, with six digits after the point, that has room for that many rows
/// from one rank to another. Requires that experts are dealt out.
[[nodiscard]] Rational least_capacity_factor(std::int64_t rows, const PlanConfig& config);

/// By the program's blocks, what prices ask.
[[nodiscard]] RoutedRows slowest_rows(const std::vector<RoutedBlock>& blocks,
                                      const Program& program);

/// Without the memory of the least factor.
[[nodiscard]] RoutingReport routing_report(const Routing& routing,
                                           const std::vector<RoutedBlock>& blocks,
                                           const PlanConfig& config);

}  // namespace mfsdp
