// Causal attention of heads of 64, 96, 128 or 256 in bf16 by wgmma and TMA, for compute capability
// 9.0, of all earlier tokens, a window of them, or a document's own; of heads of 128 and 256 also
// with softcaps. Queries, and keys too, may be those of a part of each sequence (SequenceShare).
// gpu_backend/cuda/warpgroup_attention.hpp describes the supported calls and the TMA descriptors.
//
// S = scale * Q K^T, masked; L the log-sum-exp of its rows; P = exp(S - L). A tile is 128 queries
// of a head forward, and 128 keys of a key head backward (64 of heads of 256):
//
//   forward    O = P V, keys from the diagonal to the first that is seen, the largest score so far
//              kept by rows
//   prepare    D_i = sum_d dO_id O_id and L by heads; all sums become zero
//   backward   a query head and its key head, for blocks of 64 queries from the diagonal to the
//              last that sees one of the keys:
//              dV += P^T dO,  dS = P * (dO V^T - D),  dK += dS^T Q,  the block's sums of dQ += dS K
//   finish     dQ = scale * its sums; dK and dV likewise, where query heads share them
//
// Blocks take tiles from a counter, so that a kernel beside them on some multiprocessors costs no
// more than its share. Sums of dQ, and of shared dK and dV, are added in fp32 in memory, in the
// order in which tiles finish: the order is not fixed.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/attention_choice.hpp"
#include "core/plan/kernels/attention.hpp"

namespace mfsdp::cuda {

inline constexpr int kWarpgroupTile = kWarpgroupTokens;  ///< queries forward, keys backward
inline constexpr int kWarpgroupQueries = kWarpgroupBackwardQueries;
inline constexpr int kBoxColumns = 64;  ///< of a head; of heads of 96 the second box is half empty
/// Tokens in a tile of keys, forward and backward.
[[nodiscard]] constexpr int attention_keys(std::int64_t head_dim) {
  return head_dim == 256 ? kWarpgroupTile / 2 : kWarpgroupTile;
}
/// Whether a query sees less than all tokens up to its own.
[[nodiscard]] constexpr bool is_bounded(const kernels::AttentionShape& s) {
  return s.positions != nullptr || (s.window > 0 && s.window < s.seq_len);
}
/// At the beginning of a workspace: the number of tiles that are begun.
inline constexpr std::int64_t kWarpgroupCounterBytes = 256;

/// TMA descriptors of views [tokens, heads, head_dim]. Boxes have 64 columns of one head and the
/// number of tokens in the comment.
struct AttentionForwardMaps {
  CUtensorMap query;   ///< kWarpgroupTile
  CUtensorMap key;     ///< attention_keys()
  CUtensorMap value;   ///< attention_keys()
  CUtensorMap output;  ///< 64
};
struct AttentionBackwardMaps {
  CUtensorMap query;     ///< kWarpgroupQueries
  CUtensorMap key;       ///< attention_keys()
  CUtensorMap value;     ///< attention_keys()
  CUtensorMap d_output;  ///< kWarpgroupQueries
};

[[nodiscard]] Result<void> warpgroup_attention_forward(const kernels::AttentionForward<Bf16>& k,
                                                       const AttentionForwardMaps& maps,
                                                       cudaStream_t stream);
/// The same for a part of each sequence, by other kernels.
[[nodiscard]] Result<void> warpgroup_attention_forward_of_part(
    const kernels::AttentionForward<Bf16>& k, const AttentionForwardMaps& maps,
    cudaStream_t stream);

/// Bytes of the backward's workspace: the counter, then, of whole sequences, the sums of dK and dV
/// if query heads share them. `row_sums` is not used: D and L are stored where dQ is written last.
[[nodiscard]] std::int64_t warpgroup_backward_workspace(const kernels::AttentionShape& shape);

[[nodiscard]] Result<void> warpgroup_attention_backward(const kernels::AttentionBackward<Bf16>& k,
                                                        const AttentionBackwardMaps& maps,
                                                        cudaStream_t stream);
/// The same for a part of each sequence and heads of at most 128, by other kernels.
[[nodiscard]] Result<void> warpgroup_attention_backward_of_part(
    const kernels::AttentionBackward<Bf16>& k, const AttentionBackwardMaps& maps,
    cudaStream_t stream);
/// The same for heads of 256, by another kernel.
[[nodiscard]] Result<void> warpgroup_attention_backward_256(
    const kernels::AttentionBackward<Bf16>& k, const AttentionBackwardMaps& maps,
    cudaStream_t stream);

}  // namespace mfsdp::cuda
