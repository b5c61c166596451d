// How a router distributes tokens over experts, and the resulting load of the ranks.
//
// The tokens of all ranks have the same distribution, in every microbatch. For a rank with T tokens
// and K choices each:
//     rows of an expert  = T K times its share, rounded so that the rows of any range of
//                          neighbouring experts are within one of their exact value
//     rows on a rank     = rows of its experts, from each of the expert-parallel ranks
// Every exchange synchronises the ranks, so a block takes as long as on its slowest rank: the one
// with the most rows in full tiles.
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

/// The requested distribution; balanced by default.
struct Routing {
  std::string text = "balanced";
  std::optional<double> zipf;  ///< shares as 1 / (e + 1)^this
  /// Measured tokens of each expert: one list for all blocks, or one for each block with experts.
  std::vector<std::vector<std::int64_t>> counts;
  std::vector<std::int64_t> blocks;  ///< of each list, where they are stated

  [[nodiscard]] bool is_balanced() const { return !zipf && counts.empty(); }
};

/// Choices of one rank's tokens in one block and microbatch.
struct RoutedBlock {
  std::int64_t block = 0;
  std::vector<std::int64_t> rows;  ///< of each of the model's experts; T K together
};

/// A routing, and its rows in a configuration.
struct RoutedModel {
  Routing routing;
  std::vector<RoutedBlock> blocks;  ///< routed_blocks()
};

/// Rows for each block with experts. Errors: the model has no experts; counts of other experts or
/// blocks; all counts 0; more tokens for one expert than its maximum, which is each token once.
[[nodiscard]] Result<std::vector<RoutedBlock>> routed_blocks(const Routing& routing,
                                                             const PlanConfig& config);

/// Weights of a Zipf distribution over `experts`, of which each token chooses `chosen`. The sum is
/// about 2^40. No expert gets more than 1 / chosen of all choices (each token once); the excess
/// goes to the other experts in proportion.
[[nodiscard]] std::vector<std::int64_t> zipf_weights(double exponent, std::int64_t experts,
                                                     std::int64_t chosen);

/// Distributes `chosen` rows by weights; at least one weight must not be 0.
[[nodiscard]] std::vector<std::int64_t> rows_by_weight(const std::vector<std::int64_t>& weights,
                                                       std::int64_t chosen);

/// Rows that a rank along ep receives. Its experts are neighbours.
[[nodiscard]] ExpertRows rows_on_rank(const RoutedBlock& block, const PlanConfig& config,
                                      std::int64_t rank);

/// The slowest rank; the first one of equals.
[[nodiscard]] std::int64_t slowest_rank(const RoutedBlock& block, const PlanConfig& config);

/// The smallest --capacity-factor, with six decimals, whose buffers hold this number of rows from
/// one rank to another. Requires expert parallelism.
[[nodiscard]] Rational least_capacity_factor(std::int64_t rows, const PlanConfig& config);

/// Rows of the slowest rank in each of the program's blocks, for pricing.
[[nodiscard]] RoutedRows slowest_rows(const std::vector<RoutedBlock>& blocks,
                                      const Program& program);

/// The report, without the memory at the smallest sufficient capacity factor.
[[nodiscard]] RoutingReport routing_report(const Routing& routing,
                                           const std::vector<RoutedBlock>& blocks,
                                           const PlanConfig& config);

}  // namespace mfsdp
