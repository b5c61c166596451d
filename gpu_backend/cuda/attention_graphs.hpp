// Causal attention with grouped key and value heads as graphs of cuDNN, in bf16 or fp16.
//
// cuDNN's own operation for attention has no causal mask before 9.21, and its engines do not
// support its backward. Therefore both directions are graphs of ordinary operations that its fused
// engines recognise. With S = scale * Q K^T, masked, L the log-sum-exp of its rows and P = exp(S -
// L):
//
//   O = P V                            L is kept in [tokens, heads]
//   D_i = sum_d dO_id O_id             dV = P^T dO         summed over a group's query heads
//   dS = P * (dO V^T - D) * scale      dK = dS^T Q         likewise
//                                      dQ = dS K           in fp32, then rounded
//
// With a sliding window, keys far before the query are masked too, and with documents those of
// earlier documents. With a logit softcap c the logits are c t, t = tanh(S / c), and dS is
// multiplied by 1 - t^2.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>

#include "core/base/error.hpp"
#include "core/plan/kernel_spec.hpp"
#include "core/plan/kernels/attention.hpp"
#include "gpu_backend/cuda/cudnn_graph.hpp"

namespace mfsdp::cuda {

/// Strides of a view [batch, heads, seq, head_dim] in elements; the last one is 1.
struct HeadStrides {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t position = 0;

  friend auto operator<=>(const HeadStrides&, const HeadStrides&) = default;
};

/// Tensors and numbers that only some kinds of attention have; a run names those that exist.
struct ScoreTerms {
  std::int32_t window = 0;
  float cap = 0;
  float inverse_cap = 0;
  std::optional<GraphTensor> window_tensor{};
  std::optional<GraphTensor> positions_tensor{};  ///< int32, of each query in its document
  std::optional<GraphTensor> cap_tensor{};
  std::optional<GraphTensor> inverse_cap_tensor{};
};

/// Everything that a compiled forward depends on.
struct AttentionLayout {
  cudnnDataType_t storage = CUDNN_DATA_BFLOAT16;  ///< dtype in memory and of the operands of GEMMs
  std::int64_t batch = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t seq_len = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;  ///< of values and output; 0: head_dim
  std::int64_t window = 0;     ///< tokens that a query sees; 0: all up to its own
  double query_scalar = 0;     ///< logits are divided by its root; 0 means head_dim
  double score_cap = 0;        ///< 0: none
  bool documents = false;      ///< masked between them: a call has positions
  HeadStrides query, key, value, output;

  [[nodiscard]] std::int64_t values() const { return value_dim != 0 ? value_dim : head_dim; }
  friend auto operator<=>(const AttentionLayout&, const AttentionLayout&) = default;
};

/// Everything that a compiled backward depends on.
struct AttentionBackwardLayout {
  AttentionLayout forward;
  HeadStrides d_output, d_query, d_key, d_value;
  /// Gradients have equal bits every time, for a workspace that grows with the sequence squared.
  bool deterministic = false;

  friend auto operator<=>(const AttentionBackwardLayout&, const AttentionBackwardLayout&) = default;
};

template <class T>
[[nodiscard]] AttentionLayout layout_of(const kernels::AttentionForward<T>& k);
template <class T>
[[nodiscard]] AttentionBackwardLayout layout_of(const kernels::AttentionBackward<T>& k);

/// Workspace of cuDNN's first choice for a layout, in bytes: measured, equal in 9.14 and 9.19.
/// Forward takes kAttentionWorkspaceBytes.
[[nodiscard]] std::int64_t attention_backward_workspace(const AttentionBackwardLayout& layout);

class AttentionForwardPlan {
 public:
  explicit AttentionForwardPlan(const AttentionLayout& layout);

  /// Its engines report what cuDNN would run and its workspace.
  [[nodiscard]] const CudnnGraph& graph() const { return graph_; }
  /// Compiles the fastest engine whose workspace fits into `workspace_bytes`. Call once, before
  /// run().
  [[nodiscard]] Result<void> build(const CudnnTarget& target, std::int64_t workspace_bytes);
  /// Queues a call of this layout on the handle's stream.
  template <class T>
  [[nodiscard]] Result<void> run(cudnnHandle_t handle, const kernels::AttentionForward<T>& k) const;

 private:
  float scale_;
  ScoreTerms terms_;
  CudnnGraph graph_;
  GraphTensor query_, key_, value_, output_, log_sum_exp_, scale_tensor_, masked_;
  std::optional<CudnnPlan> plan_;
};

class AttentionBackwardPlan {
 public:
  explicit AttentionBackwardPlan(const AttentionBackwardLayout& layout);

  [[nodiscard]] const CudnnGraph& graph() const { return graph_; }
  [[nodiscard]] Result<void> build(const CudnnTarget& target, std::int64_t workspace_bytes);
  template <class T>
  [[nodiscard]] Result<void> run(cudnnHandle_t handle,
                                 const kernels::AttentionBackward<T>& k) const;

 private:
  float scale_;
  ScoreTerms terms_;
  CudnnGraph graph_;
  GraphTensor query_, key_, value_, output_, d_output_, log_sum_exp_;
  GraphTensor d_query_, d_key_, d_value_, row_sums_, scale_tensor_, masked_, one_;
  std::optional<GraphTensor> d_query_sum_;
  std::optional<CudnnPlan> plan_;
};

}  // namespace mfsdp::cuda
