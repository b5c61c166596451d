// --exact-sums: gradients that no order of adding can change, so that world sizes, strategies and
// microbatches can be compared bit for bit.
//
// What a step adds up over tokens is cut into pieces that depend on the data alone: the tokens of
// one sequence, or of one chunk of logits where those are shorter. Whoever computes a piece sums it
// alone, by products of one shape, and rounds the sum to a multiple of 2^exponent. With P pieces in
// the global batch and each of them at most 2^24 / P such multiples, all that is ever added is a
// whole number of them below 2^24, which fp32 holds exactly: over tokens, chunks, microbatches,
// shards and outer groups, in any order. A larger piece is an error of the kernel that made it.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/plan/config.hpp"

namespace mfsdp {

struct ExactSums {
  std::int64_t exponent = 0;    ///< gradients are multiples of 2^exponent
  std::int64_t limit = 0;       ///< of a piece's magnitude, in these multiples
  std::int64_t piece_rows = 0;  ///< tokens of a piece; fewer only where a kernel has no more rows
};

/// The same for equal model, sequence length, logits chunk and global batch. A piece may be as
/// large as 2^4 T / P, with T the tokens and P the pieces of the global batch: where pieces are
/// whole sequences, 2^4 for each of its tokens. Requires a valid configuration.
[[nodiscard]] ExactSums exact_sums(const PlanConfig& config);

/// What --exact-sums asks of the other flags; the error names the flag that does not fit.
[[nodiscard]] Result<void> check_exact_sums(const PlanConfig& config);

/// Attributes of kernels. The partials of the gradient's norm are int64: sums of squares in units
/// of 4^exponent.
namespace exact_attribute {
inline constexpr std::string_view piece_rows = "piece_rows";        ///< of all that work on pieces
inline constexpr std::string_view piece_limit = "piece_limit";      ///< of those that round
inline constexpr std::string_view grid_exponent = "grid_exponent";  ///< of these and the norm's
}  // namespace exact_attribute

}  // namespace mfsdp
