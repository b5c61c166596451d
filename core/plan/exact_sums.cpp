#include "core/plan/exact_sums.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

namespace mfsdp {
namespace {

constexpr std::int64_t kFloatBits = 24;  ///< of an fp32 significand
/// Up to here (x + 3 * 2^22) - 3 * 2^22 in fp32 rounds x to nearest even.
constexpr std::int64_t kMostSteps = std::int64_t{1} << (kFloatBits - 2);
constexpr std::int64_t kTokenBits = 4;  ///< the mean gradient of a token may be 2^4
/// Leaves a piece 2^8 steps of the grid: with fewer, rounding would be most of a gradient.
constexpr std::int64_t kMostPieces = std::int64_t{1} << 16;

std::int64_t piece_tokens(const PlanConfig& config) {
  return std::min(config.seq_len, config.logits_chunk);
}

std::int64_t global_tokens(const PlanConfig& config) {
  return checked_mul(config.tokens_per_step(), config.mesh.world_size());
}

/// How many pieces of a step are added into one element of a gradient, at most: the head's are cut
/// by chunks of logits, and tied embeddings add the lookup's, one a sequence.
std::int64_t pieces(const PlanConfig& config) {
  const std::int64_t sequences = global_tokens(config) / config.seq_len;
  const std::int64_t chunks = config.seq_len / piece_tokens(config);
  return checked_mul(sequences, chunks + (config.model.tied_embeddings ? 1 : 0));
}

std::int64_t ceil_log2(std::int64_t value) {
  return std::bit_width(static_cast<std::uint64_t>(value - 1));
}

}  // namespace

ExactSums exact_sums(const PlanConfig& config) {
  return {.exponent = ceil_log2(global_tokens(config)) + kTokenBits - kFloatBits,
          .limit = std::min((std::int64_t{1} << kFloatBits) / pieces(config), kMostSteps),
          .piece_rows = config.seq_len};
}

Result<void> check_exact_sums(const PlanConfig& config) {
  if (!config.exact_sums) return {};
  for (const auto& [flag, dtype] :
       {std::pair{"--grad-dtype", config.grad_dtype}, {"--reduce-dtype", config.reduce_dtype}})
    if (dtype != DType::fp32)
      return fail(flag, fmt::format("expected fp32 with --exact-sums, got {}", to_string(dtype)));
  const std::int64_t longer = std::max(config.seq_len, config.logits_chunk);
  if (longer % piece_tokens(config) != 0)
    return fail("--logits-chunk",
                fmt::format("expected a multiple or a divisor of the {} tokens of a sequence with "
                            "--exact-sums, got {}",
                            config.seq_len, config.logits_chunk));
  if (pieces(config) > kMostPieces)
    return fail("--exact-sums", fmt::format("expected at most {} sequences or chunks of them in "
                                            "the global batch, got {}",
                                            kMostPieces, pieces(config)));
  return {};
}

}  // namespace mfsdp
