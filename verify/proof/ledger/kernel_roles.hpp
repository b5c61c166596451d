// Roles of kernels and operands, as the proofs of gradients and weights need them.
#pragma once

#include <algorithm>
#include <string_view>

#include "core/plan/config.hpp"
#include "core/plan/op.hpp"

namespace mfsdp {

/// The first operand of that role, or null.
[[nodiscard]] inline const Operand* operand_of(const Kernel& kernel, std::string_view role) {
  for (const Operand& operand : kernel.operands)
    if (operand.role == role) return &operand;
  return nullptr;
}

/// Ranks with losses of different tokens: 1/T counts the tokens of each once.
[[nodiscard]] inline std::int64_t loss_ranks(const Mesh& mesh) {
  return checked_mul(checked_mul(mesh.size(Axis::dp_outer), mesh.size(Axis::dp_shard)),
                     mesh.size(Axis::cp));
}

/// Rows at experts for the rows that a rank has of a microbatch between blocks.
[[nodiscard]] inline std::int64_t rows_of_tokens(const PlanConfig& config) {
  return checked_mul(config.rows_per_microbatch(), config.model.experts_per_token);
}
/// Rows of the experts that a rank has: of its own tokens or, with expert parallelism, a block from
/// each rank of ep. The capacity of a block is all of a rank's rows, or the configured multiple of
/// an equal share.
[[nodiscard]] inline std::int64_t rows_of_experts(const PlanConfig& config) {
  const std::int64_t own = rows_of_tokens(config);
  const std::int64_t peers = config.expert_parallel;
  if (peers == 0) return own;
  std::int64_t block = own;
  const auto [num, den] = config.capacity_factor;
  if (num != 0) {
    const std::int64_t whole = checked_mul(den, peers);
    const std::int64_t share = checked_mul(own, num);
    block = std::min(own, share / whole + (share % whole == 0 ? 0 : 1));
  }
  return checked_mul(block, peers);
}

/// Takes the largest magnitude of a tensor, or casts it: `input` is a value or a weight.
[[nodiscard]] constexpr bool casts_to_fp8(KernelKind kind) {
  return kind == KernelKind::amax || kind == KernelKind::cast_blocks ||
         kind == KernelKind::cast_scaled;
}

[[nodiscard]] inline bool is_update(const Kernel& kernel) {
  return kernel.kind == KernelKind::update;
}

/// Makes directions of a gradient, whose update comes after they are orthogonalised.
[[nodiscard]] inline bool is_momentum(const Kernel& kernel) {
  return kernel.kind == KernelKind::momentum;
}

/// Uses parameters such that each of them gets a gradient.
[[nodiscard]] inline bool is_forward(const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::add_bias:
    case KernelKind::embedding_forward:
    case KernelKind::expert_bias_forward:
    case KernelKind::grouped_product:
    case KernelKind::latent_norm_forward:
    case KernelKind::layer_norm_forward:
    case KernelKind::qk_norm_rope_forward:
    case KernelKind::qk_row_norm_rope_forward:
    case KernelKind::rms_norm_forward:
    case KernelKind::sink_forward: return true;
    case KernelKind::gemm:
    case KernelKind::gemm_fp8: return gemm_kind(kernel) == GemmKind::forward;
    // Forward's GEMMs read weights that were cast, here or before they were gathered; those of
    // gradients read transposed ones.
    case KernelKind::cast_blocks:
    case KernelKind::cast_scaled: return operand_of(kernel, "output") != nullptr;
    default: return false;
  }
}

/// Takes gradients where they are kept: no step of the model does.
[[nodiscard]] inline bool takes_gradients(const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::accumulate:
    case KernelKind::cast:
    case KernelKind::momentum:
    case KernelKind::newton_schulz:
    case KernelKind::norm_partial:
    case KernelKind::sum_ranks:
    case KernelKind::update:
    case KernelKind::zero_padding: return true;
    default: return false;
  }
}

/// Makes the gradient of a parameter, in its operand "weight_grad".
[[nodiscard]] inline bool makes_gradient(const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::bias_grad:
    case KernelKind::embedding_backward:
    case KernelKind::expert_bias_gradient:
    case KernelKind::grouped_weight_gradient:
    case KernelKind::norm_weight_grad:
    case KernelKind::position_embedding_backward: return true;
    case KernelKind::gemm:
    case KernelKind::gemm_blocks:
    case KernelKind::gemm_fp8: return gemm_kind(kernel) == GemmKind::weight_gradient;
    default: return false;
  }
}

}  // namespace mfsdp
