#include "core/plan/exact_sums.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/plan/loss_scale.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kFloatBits = 24;  ///< of an fp32 significand
/// Up to here (x + 3 * 2^22) - 3 * 2^22 in fp32 rounds x to nearest even.
constexpr std::int64_t kMostSteps = std::int64_t{1} << (kFloatBits - 2);
/// With one rank, gradients of the mean loss may be kMostSteps * 2^exponent / T >= 2^(kMeanBits -
/// 2).
constexpr std::int64_t kMeanBits = 3;
/// Leaves each rank 2^8 steps; with fewer, rounding errors would dominate a gradient.
constexpr std::int64_t kMostRanks = std::int64_t{1} << 16;

std::int64_t limit_among(std::int64_t ranks) {
  return std::min((std::int64_t{1} << kFloatBits) / ranks, kMostSteps);
}

std::int64_t ceil_log2(std::int64_t value) {
  return static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(value - 1)));
}

/// Some kernels compute a piece's positions from its first token, which must begin a sequence.
std::int64_t piece_of(const PlanConfig& config) {
  const FamilyTraits& traits = config.model.traits();
  const bool by_sequences = !traits.rotates || traits.latent_attention || config.model.qk_norm;
  return by_sequences ? config.seq_len : std::min(config.seq_len, config.logits_chunk);
}

}  // namespace

ExactSums exact_sums(const PlanConfig& config) {
  const std::int64_t tokens = config.global_tokens();
  const auto limit_over = [&](const Placement& shard) {
    return limit_among(ranks_on(data_axes(config.mesh, shard), config.mesh));
  };
  // Steps of scaled gradients are larger by the scale, a power of two (check_loss_scale).
  const std::int64_t scaled = config.scales_loss() ? std::ilogb(first_loss_scale(config).scale) : 0;
  return {.exponent = ceil_log2(tokens) + kMeanBits - kFloatBits + scaled,
          .rank_limit = limit_over({}),
          .expert_limit = limit_over(expert_shard()),
          .outer_limit = limit_among(config.mesh.size(Axis::dp_outer)),
          .piece_rows = piece_of(config)};
}

std::vector<Attribute> exact_attributes(const Kernel& kernel, const ExactSums& sums) {
  const KernelSpec* spec = spec_of(kernel);
  if (spec == nullptr) return {};
  std::vector<Attribute> made;
  const auto add = [&](std::string_view name, std::int64_t value) {
    made.emplace_back(std::string(name), value);
  };
  if (spec->sum != GradientSum::none) add(exact_attribute::grid_exponent, sums.exponent);
  if (!spec->pieces.empty())
    add(exact_attribute::piece_rows,
        spec->rows_are_sums ? 1 : std::min(sums.piece_rows, kernel.attribute(spec->pieces)));
  const bool of_experts = kernel.kind == KernelKind::grouped_weight_gradient ||
                          kernel.kind == KernelKind::expert_bias_gradient;
  if (spec->sum == GradientSum::of_rank)
    add(exact_attribute::sum_limit, of_experts ? sums.expert_limit : sums.rank_limit);
  if (spec->sum == GradientSum::of_ranks) add(exact_attribute::sum_limit, sums.outer_limit);
  return made;
}

Result<void> check_exact_sums(const PlanConfig& config) {
  if (!config.exact_sums) return {};
  for (const auto& [flag, dtype] :
       {std::pair{"--grad-dtype", config.grad_dtype}, {"--reduce-dtype", config.reduce_dtype}})
    if (dtype != DType::fp32)
      return fail(flag, fmt::format("expected fp32 with --exact-sums, got {}", to_string(dtype)));
  const auto [shorter, longer] = std::minmax(config.seq_len, config.logits_chunk);
  if (longer % shorter != 0)
    return fail("--logits-chunk",
                fmt::format("expected a multiple or a divisor of the {} tokens of a sequence with "
                            "--exact-sums, got {}",
                            config.seq_len, config.logits_chunk));
  const std::int64_t share = config.seq_len / sequence_parts(config.mesh);
  if (share % piece_of(config) != 0)
    return fail(
        "--logits-chunk",
        fmt::format("expected a divisor of the {} tokens of a sequence that a rank has with "
                    "--cp and --exact-sums, got {}",
                    share, config.logits_chunk));
  if (const std::int64_t ranks = config.mesh.world_size(); ranks > kMostRanks)
    return fail("--exact-sums", fmt::format("expected at most {} GPUs, got {}", kMostRanks, ranks));
  return {};
}

}  // namespace mfsdp
