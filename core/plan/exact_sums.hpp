// --exact-sums: gradients that do not depend on the order of additions, so that world sizes,
// strategies and microbatches can be compared bit for bit.
//
// Sums over tokens are divided into pieces that depend on the data only: the tokens of one
// sequence, or of one chunk of logits where that is shorter. Ranks that share sequences have whole
// pieces. (Norms of queries and keys and learned positions take whole sequences.) A rank sums each of its pieces
// separately, by GEMMs of one shape, and rounds the sum to a multiple of 2^exponent, called a step.
// All further additions are of whole numbers of steps, which are exact in fp32 below 2^24:
//
//   pieces ──► a rank's sum ──────► over dp_shard ──► microbatches ──────► over dp_outer
//              checked: at most     at most           checked: at most     at most
//              2^24 / (I O)         2^24 / O          2^24 / O             2^24
//
// with I = dp_shard * cp and O = dp_outer. A kernel reports a sum beyond these limits as an error.
// Limits are checked on the run's data: a run that ends without error is exact.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/plan/config.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {

struct ExactSums {
  std::int64_t exponent = 0;      ///< gradients are multiples of 2^exponent, the steps
  std::int64_t rank_limit = 0;    ///< of a sum before the ranks of dp_shard are added, steps
  std::int64_t expert_limit = 0;  ///< the same for expert-parallel groups, over expt_dp
  std::int64_t outer_limit = 0;   ///< of a sum before the ranks of dp_outer are added, steps
  std::int64_t piece_rows = 0;    ///< tokens of a piece; fewer only where a kernel has no more rows
};

/// The exponent depends on the global batch only; it allows gradients of a mean loss up to 2.
/// Requires a valid configuration.
[[nodiscard]] ExactSums exact_sums(const PlanConfig& config);

/// Checks the other flags with --exact-sums; the error names the flag.
[[nodiscard]] Result<void> check_exact_sums(const PlanConfig& config);

/// Attributes of kernels. The partials of the gradient's norm are int64: sums of squares of steps.
namespace exact_attribute {
inline constexpr std::string_view piece_rows = "piece_rows";  ///< of kernels that sum pieces
inline constexpr std::string_view sum_limit = "sum_limit";    ///< of kernels that add gradients
inline constexpr std::string_view grid_exponent = "grid_exponent";  ///< of these and the norm's
}  // namespace exact_attribute

/// The additional attributes of a kernel with --exact-sums, sorted by name.
[[nodiscard]] std::vector<Attribute> exact_attributes(const Kernel& kernel, const ExactSums& sums);

}  // namespace mfsdp
