// Causal attention with grouped key and value heads through cuDNN, in bf16 or fp16.
//
// cuDNN's own operation for attention has no causal mask before 9.21 and no backward that its
// engines take, so both directions are graphs of ordinary operations that its fused engines
// recognise. With S = scale * Q K^T, masked, L the log-sum-exp of its rows and P = exp(S - L):
//
//   O = P V                            L is kept in [tokens, heads]
//   D_i = sum_d dO_id O_id             dV = P^T dO         summed over a group's query heads
//   dS = P * (dO V^T - D) * scale      dK = dS^T Q         likewise
//                                      dQ = dS K           in fp32, then rounded
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"
#include "gpu_backend/cuda/cudnn_graph.hpp"

namespace mfsdp::cuda {

/// Strides of a view [batch, heads, seq, head_dim] in elements; the last one is 1.
struct HeadStrides {
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t position = 0;

  friend bool operator==(const HeadStrides&, const HeadStrides&) = default;
};

/// Everything that a compiled attention depends on. Output and its gradient are rows of
/// [tokens, heads * head_dim].
struct AttentionLayout {
  std::int64_t batch = 0;
  std::int64_t heads = 0;     ///< of queries, a multiple of kv_heads
  std::int64_t kv_heads = 0;  ///< each serves heads / kv_heads query heads in a row
  std::int64_t seq_len = 0;
  std::int64_t head_dim = 0;
  DType dtype = DType::bf16;
  HeadStrides query, key, value;

  friend bool operator==(const AttentionLayout&, const AttentionLayout&) = default;
};

/// What cuDNN's fused engines take, bytes; measured, equal in 9.14 and 9.19.
inline constexpr std::int64_t kAttentionForwardWorkspace = 256;

/// Likewise. With several query heads a group, dK and dV of each in storage precision, both on a
/// multiple of 128 bytes; deterministic gradients take P or dS for whole tiles of 64 x 128 scores.
[[nodiscard]] std::int64_t attention_backward_workspace(const AttentionLayout& layout,
                                                        bool deterministic);

/// Device memory of a forward call.
struct AttentionForwardMemory {
  const void* query = nullptr;
  const void* key = nullptr;
  const void* value = nullptr;
  void* output = nullptr;        ///< [tokens, heads * head_dim]
  float* log_sum_exp = nullptr;  ///< [tokens, heads]
  void* workspace = nullptr;
};

class AttentionForwardPlan {
 public:
  explicit AttentionForwardPlan(const AttentionLayout& layout);

  /// Its engines tell what cuDNN would run and with how much workspace.
  [[nodiscard]] const CudnnGraph& graph() const { return graph_; }
  /// Compiles the fastest engine that `workspace_bytes` suffice for. Call once, before run().
  [[nodiscard]] Result<void> build(const CudnnTarget& target, std::int64_t workspace_bytes);
  [[nodiscard]] Result<void> run(cudnnHandle_t handle, const AttentionForwardMemory& memory) const;

 private:
  float scale_;
  CudnnGraph graph_;
  GraphTensor query_, key_, value_, output_, log_sum_exp_, scale_tensor_, masked_;
  std::optional<CudnnPlan> plan_;
};

/// Device memory of a backward call.
struct AttentionBackwardMemory {
  const void* query = nullptr;
  const void* key = nullptr;
  const void* value = nullptr;
  const void* output = nullptr;
  const void* d_output = nullptr;
  const float* log_sum_exp = nullptr;
  void* d_query = nullptr;  ///< the three lie in rows of `d_row` elements
  void* d_key = nullptr;
  void* d_value = nullptr;
  float* d_query_sum = nullptr;  ///< scratch of tokens * heads * head_dim; unused if deterministic
  float* row_sums = nullptr;     ///< scratch of tokens * heads
  void* workspace = nullptr;
};

struct AttentionBackwardOptions {
  /// Gradients have equal bits every time, for a workspace that grows with the sequence squared.
  bool deterministic = false;
  /// From one token to the next in d_query, d_key and d_value, elements.
  std::int64_t d_row = 0;

  friend bool operator==(const AttentionBackwardOptions&, const AttentionBackwardOptions&) = default;
};

class AttentionBackwardPlan {
 public:
  AttentionBackwardPlan(const AttentionLayout& layout, const AttentionBackwardOptions& options);

  [[nodiscard]] const CudnnGraph& graph() const { return graph_; }
  [[nodiscard]] Result<void> build(const CudnnTarget& target, std::int64_t workspace_bytes);
  [[nodiscard]] Result<void> run(cudnnHandle_t handle, const AttentionBackwardMemory& memory) const;

 private:
  float scale_;
  CudnnGraph graph_;
  GraphTensor query_, key_, value_, output_, d_output_, log_sum_exp_;
  GraphTensor d_query_, d_key_, d_value_, row_sums_, scale_tensor_, masked_, one_;
  std::optional<GraphTensor> d_query_sum_;
  std::optional<CudnnPlan> plan_;
};

}  // namespace mfsdp::cuda
