// --exact-sums: gradients that no order of adding can change, so that world sizes, strategies and
// microbatches can be compared bit for bit.
//
// What a step adds up over tokens is cut into pieces that depend on the data alone: the tokens of
// one sequence, or of one chunk of logits where those are shorter. Whoever has a piece sums it
// alone, by products of one shape, and rounds the sum to a whole number of steps of 2^exponent.
// From there on only whole numbers are added, which fp32 does exactly below 2^24:
//
//   pieces ──► a rank's sum ──────► over dp_shard ──► microbatches ──────► over dp_outer
//              checked: at most     at most           checked: at most     at most
//              2^24 / (I O)         2^24 / O          2^24 / O             2^24
//
// with I = dp_shard and O = dp_outer. A sum that leaves these limits is an error of the kernel that
// made it. The numbers are those of a run's data and no bound of them: a run that ends is exact.
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
  std::int64_t expert_limit = 0;  ///< the same of experts that are dealt out, over expt_dp
  std::int64_t outer_limit = 0;   ///< and of one before those of dp_outer are
  std::int64_t piece_rows = 0;    ///< tokens of a piece; fewer only where a kernel has no more rows
};

/// The exponent is the same for equal global batches: it leaves room for gradients of a mean loss
/// up to 2. Requires a valid configuration.
[[nodiscard]] ExactSums exact_sums(const PlanConfig& config);

/// What --exact-sums asks of the other flags; the error names the flag that does not fit.
[[nodiscard]] Result<void> check_exact_sums(const PlanConfig& config);

/// Attributes of kernels. The partials of the gradient's norm are int64: sums of squares of steps.
namespace exact_attribute {
inline constexpr std::string_view piece_rows = "piece_rows";  ///< of those that work on pieces
inline constexpr std::string_view sum_limit = "sum_limit";    ///< of those that add gradients
inline constexpr std::string_view grid_exponent = "grid_exponent";  ///< of these and the norm's
}  // namespace exact_attribute

/// The attributes that --exact-sums gives a kernel beside those of its kind, sorted by name.
[[nodiscard]] std::vector<Attribute> exact_attributes(const Kernel& kernel, const ExactSums& sums);

}  // namespace mfsdp
