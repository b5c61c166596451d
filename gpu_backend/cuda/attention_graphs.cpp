#include "gpu_backend/cuda/attention_graphs.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/quantity.hpp"
#include "core/runtime/scalar.hpp"

namespace mfsdp::cuda {
namespace {

constexpr float kMasked = -std::numeric_limits<float>::infinity();
constexpr float kOne = 1;

float scale_of(const AttentionLayout& layout) {
  return 1 / std::sqrt(layout.query_scalar > 0 ? static_cast<float>(layout.query_scalar)
                                               : static_cast<float>(layout.head_dim));
}

/// A graph's operands, by the layout's sizes.
class Operands {
 public:
  Operands(CudnnGraph& graph, const AttentionLayout& layout) : graph_(graph), l_(layout) {}

  /// [batch, heads, seq, columns]
  GraphTensor view(std::int64_t heads, std::int64_t columns, const HeadStrides& strides) {
    return graph_.memory({l_.batch, heads, l_.seq_len, columns},
                         {strides.batch, strides.head, strides.position, 1}, l_.storage);
  }
  /// The same elements as [batch, heads, columns, seq]
  GraphTensor transposed(std::int64_t heads, std::int64_t columns, const HeadStrides& strides) {
    return graph_.memory({l_.batch, heads, columns, l_.seq_len},
                         {strides.batch, strides.head, 1, strides.position}, l_.storage);
  }
  /// One fp32 number for each row of logits, as [tokens, heads].
  GraphTensor statistic() {
    return graph_.memory({l_.batch, l_.heads, l_.seq_len, 1},
                         {l_.seq_len * l_.heads, 1, l_.heads, 1}, CUDNN_DATA_FLOAT);
  }
  /// One int32 for each token, at any address.
  GraphTensor of_tokens() {
    return graph_.memory({l_.batch, 1, l_.seq_len, 1}, {l_.seq_len, l_.seq_len, 1, 1},
                         CUDNN_DATA_INT32, sizeof(std::int32_t));
  }
  /// Logits [batch, heads, seq, seq] in storage precision, as operands of GEMMs.
  GraphTensor narrowed() { return graph_.between(scores(), contiguous(scores()), l_.storage); }
  /// The same for transposed logits.
  GraphTensor narrowed_transposed() {
    GraphShape strides = contiguous(scores());
    std::swap(strides[2], strides[3]);
    return graph_.between(scores(), strides, l_.storage);
  }
  /// The contribution of each query head to its group's key or value, in storage precision.
  GraphTensor of_query_heads(std::int64_t columns) {
    const GraphShape dims{l_.batch, l_.heads, l_.seq_len, columns};
    return graph_.between(dims, contiguous(dims), l_.storage);
  }

 private:
  [[nodiscard]] GraphShape scores() const { return {l_.batch, l_.heads, l_.seq_len, l_.seq_len}; }

  CudnnGraph& graph_;
  const AttentionLayout& l_;
};

/// Sets logits of keys after the query to `masked`. With a window also those of earlier keys: a
/// query sees keys with column + window > row. With documents also those of other documents, which
/// are before the query's own: a query sees keys with column + position >= row.
GraphTensor causal(CudnnGraph& graph, GraphTensor scores, GraphTensor masked,
                   const ScoreTerms& terms) {
  const GraphTensor row = graph.index(scores, 2);
  const GraphTensor column = graph.index(scores, 3);
  GraphTensor seen = graph.select(scores, masked, graph.at_least(row, column));
  if (terms.window_tensor)
    seen =
        graph.select(seen, masked, graph.above(graph.shifted(column, *terms.window_tensor), row));
  if (terms.positions_tensor)
    seen = graph.select(seen, masked,
                        graph.at_least(graph.shifted(column, *terms.positions_tensor), row));
  return seen;
}

ScoreTerms terms_of(const AttentionLayout& layout) {
  ScoreTerms terms{.window = static_cast<std::int32_t>(layout.window),
                   .cap = static_cast<float>(layout.score_cap)};
  if (layout.score_cap > 0) terms.inverse_cap = static_cast<float>(1 / layout.score_cap);
  return terms;
}

void declare(CudnnGraph& graph, Operands& operands, bool documents, ScoreTerms& terms) {
  if (documents) terms.positions_tensor = operands.of_tokens();
  if (terms.window > 0) terms.window_tensor = graph.scalar(CUDNN_DATA_INT32);
  if (terms.cap <= 0) return;
  terms.cap_tensor = graph.scalar();
  terms.inverse_cap_tensor = graph.scalar();
}

void add_memory(const ScoreTerms& terms, const std::int32_t* positions,
                std::vector<GraphMemory>& operands) {
  if (terms.positions_tensor) operands.push_back({*terms.positions_tensor, positions});
  if (terms.window_tensor) operands.push_back({*terms.window_tensor, &terms.window});
  if (!terms.cap_tensor) return;
  operands.push_back({*terms.cap_tensor, &terms.cap});
  operands.push_back({*terms.inverse_cap_tensor, &terms.inverse_cap});
}

/// Logits and, with a softcap, t = logit / cap.
struct CappedScores {
  GraphTensor scores;
  std::optional<GraphTensor> share;
};
CappedScores capped(CudnnGraph& graph, GraphTensor scores, const ScoreTerms& terms) {
  if (!terms.cap_tensor) return {.scores = scores, .share = {}};
  const GraphTensor share =
      graph.pointwise(CUDNN_POINTWISE_TANH_FWD,
                      graph.pointwise(CUDNN_POINTWISE_MUL, scores, *terms.inverse_cap_tensor));
  return {.scores = graph.pointwise(CUDNN_POINTWISE_MUL, share, *terms.cap_tensor), .share = share};
}

/// Multiplies by the slope of the softcap, 1 - t^2.
GraphTensor sloped(CudnnGraph& graph, GraphTensor gradient,
                   const std::optional<GraphTensor>& share) {
  if (!share) return gradient;
  const GraphTensor square = graph.pointwise(CUDNN_POINTWISE_MUL, *share, *share);
  return graph.pointwise(CUDNN_POINTWISE_SUB, gradient,
                         graph.pointwise(CUDNN_POINTWISE_MUL, gradient, square));
}

/// into = scores^T * right with `columns` columns, summed over a group's query heads if there are
/// several.
void product_into(CudnnGraph& graph, Operands& operands, const AttentionLayout& layout,
                  GraphTensor scores, GraphTensor right, std::int64_t columns, GraphTensor into) {
  const GraphTensor transposed = graph.reshape(scores, operands.narrowed_transposed());
  if (layout.heads == layout.kv_heads) {
    graph.matmul(transposed, right, into);
    return;
  }
  const GraphTensor each = graph.matmul(transposed, right, operands.of_query_heads(columns));
  graph.reduce(CUDNN_REDUCE_TENSOR_ADD, each, into);
}

template <class T>
HeadStrides strides_of(const kernels::HeadView<T>& view) {
  return {.batch = view.batch, .head = view.head, .position = view.position};
}

/// Operands that both directions have.
template <class Call>
AttentionLayout forward_layout(const Call& k) {
  const kernels::AttentionShape& s = k.shape;
  using T = std::remove_cvref_t<decltype(*k.query.data)>;
  return {.storage = std::is_same_v<T, Fp16> ? CUDNN_DATA_HALF : CUDNN_DATA_BFLOAT16,
          .batch = s.batch,
          .heads = s.heads,
          .kv_heads = s.kv_heads,
          .seq_len = s.seq_len,
          .head_dim = s.head_dim,
          .value_dim = s.value_dim,
          .window = s.window < s.seq_len ? s.window : 0,
          .query_scalar = s.query_scalar,
          .score_cap = s.score_cap,
          .documents = s.positions != nullptr,
          .query = strides_of(k.query),
          .key = strides_of(k.key),
          .value = strides_of(k.value),
          .output = strides_of(k.output)};
}

}  // namespace

template <class T>
AttentionLayout layout_of(const kernels::AttentionForward<T>& k) {
  return forward_layout(k);
}

template <class T>
AttentionBackwardLayout layout_of(const kernels::AttentionBackward<T>& k) {
  return {.forward = forward_layout(k),
          .d_output = strides_of(k.d_output),
          .d_query = strides_of(k.d_query),
          .d_key = strides_of(k.d_key),
          .d_value = strides_of(k.d_value),
          .deterministic = k.deterministic};
}

std::int64_t attention_backward_workspace(const AttentionBackwardLayout& layout) {
  const AttentionLayout& l = layout.forward;
  return mfsdp::attention_backward_workspace({.batch = l.batch,
                                              .heads = l.heads,
                                              .kv_heads = l.kv_heads,
                                              .seq = l.seq_len,
                                              .head_dim = l.head_dim,
                                              .deterministic = layout.deterministic,
                                              .compute = DType::bf16});
}

AttentionForwardPlan::AttentionForwardPlan(const AttentionLayout& layout)
    : scale_(scale_of(layout)), terms_(terms_of(layout)) {
  Operands operands(graph_, layout);
  query_ = operands.view(layout.heads, layout.head_dim, layout.query);
  key_ = operands.transposed(layout.kv_heads, layout.head_dim, layout.key);
  value_ = operands.view(layout.kv_heads, layout.values(), layout.value);
  output_ = operands.view(layout.heads, layout.values(), layout.output);
  log_sum_exp_ = operands.statistic();
  scale_tensor_ = graph_.scalar();
  masked_ = graph_.scalar();
  declare(graph_, operands, layout.documents, terms_);

  const GraphTensor scaled =
      graph_.pointwise(CUDNN_POINTWISE_MUL, graph_.matmul(query_, key_), scale_tensor_);
  const GraphTensor scores = causal(graph_, capped(graph_, scaled, terms_).scores, masked_, terms_);
  const GraphTensor largest = graph_.reduce(CUDNN_REDUCE_TENSOR_MAX, scores);
  const GraphTensor exponentials =
      graph_.pointwise(CUDNN_POINTWISE_EXP, graph_.pointwise(CUDNN_POINTWISE_SUB, scores, largest));
  const GraphTensor sum = graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, exponentials);
  const GraphTensor logarithm = graph_.pointwise(CUDNN_POINTWISE_LOG, sum);
  graph_.pointwise(CUDNN_POINTWISE_ADD, largest, logarithm, log_sum_exp_);
  const GraphTensor probabilities =
      graph_.pointwise(CUDNN_POINTWISE_DIV, exponentials, sum, operands.narrowed());
  graph_.matmul(probabilities, value_, output_);
}

Result<void> AttentionForwardPlan::build(const CudnnTarget& target, std::int64_t workspace_bytes) {
  MFSDP_LET(plan, graph_.build(target, workspace_bytes));
  plan_ = std::move(plan);
  return {};
}

template <class T>
Result<void> AttentionForwardPlan::run(cudnnHandle_t handle,
                                       const kernels::AttentionForward<T>& k) const {
  std::vector<GraphMemory> operands{{query_, k.query.data},
                                    {key_, k.key.data},
                                    {value_, k.value.data},
                                    {output_, k.output.data},
                                    {log_sum_exp_, k.log_sum_exp},
                                    {scale_tensor_, &scale_},
                                    {masked_, &kMasked}};
  add_memory(terms_, k.shape.positions, operands);
  return plan_->run(handle, operands, k.workspace);
}

AttentionBackwardPlan::AttentionBackwardPlan(const AttentionBackwardLayout& whole)
    : scale_(scale_of(whole.forward)), terms_(terms_of(whole.forward)) {
  const AttentionLayout& layout = whole.forward;
  Operands operands(graph_, layout);
  query_ = operands.view(layout.heads, layout.head_dim, layout.query);
  key_ = operands.transposed(layout.kv_heads, layout.head_dim, layout.key);
  value_ = operands.transposed(layout.kv_heads, layout.values(), layout.value);
  output_ = operands.view(layout.heads, layout.values(), layout.output);
  d_output_ = operands.view(layout.heads, layout.values(), whole.d_output);
  log_sum_exp_ = operands.statistic();
  d_query_ = operands.view(layout.heads, layout.head_dim, whole.d_query);
  d_key_ = operands.view(layout.kv_heads, layout.head_dim, whole.d_key);
  d_value_ = operands.view(layout.kv_heads, layout.values(), whole.d_value);
  row_sums_ = operands.statistic();
  scale_tensor_ = graph_.scalar();
  masked_ = graph_.scalar();
  one_ = graph_.scalar();
  declare(graph_, operands, layout.documents, terms_);

  // D; cuDNN's engines recognise it by a factor after the sum.
  const GraphTensor products = graph_.pointwise(CUDNN_POINTWISE_MUL, d_output_, output_);
  graph_.pointwise(CUDNN_POINTWISE_MUL, graph_.reduce(CUDNN_REDUCE_TENSOR_ADD, products), one_,
                   row_sums_);
  // P again, then dV.
  const GraphTensor scaled =
      graph_.pointwise(CUDNN_POINTWISE_MUL, graph_.matmul(query_, key_), scale_tensor_);
  const CappedScores own = capped(graph_, scaled, terms_);
  const GraphTensor shifted = graph_.pointwise(CUDNN_POINTWISE_SUB, own.scores, log_sum_exp_);
  const GraphTensor probabilities =
      graph_.pointwise(CUDNN_POINTWISE_EXP, causal(graph_, shifted, masked_, terms_));
  product_into(graph_, operands, layout, probabilities, d_output_, layout.values(), d_value_);
  // dS, then dK.
  const GraphTensor d_probabilities = graph_.matmul(d_output_, value_);
  const GraphTensor centred = graph_.pointwise(CUDNN_POINTWISE_SUB, d_probabilities, row_sums_);
  const GraphTensor weighted = graph_.pointwise(CUDNN_POINTWISE_MUL, centred, probabilities);
  const GraphTensor d_scores =
      graph_.pointwise(CUDNN_POINTWISE_MUL, sloped(graph_, weighted, own.share), scale_tensor_);
  product_into(graph_, operands, layout, d_scores, query_, layout.head_dim, d_key_);
  // dQ, by K as [batch, kv_heads, seq, head_dim] again.
  const GraphTensor key = graph_.reshape(
      key_, graph_.between({layout.batch, layout.kv_heads, layout.seq_len, layout.head_dim},
                           {layout.key.batch, layout.key.head, layout.key.position, 1},
                           CUDNN_DATA_FLOAT));
  if (whole.deterministic) {
    graph_.matmul(d_scores, key, d_query_);
    return;
  }
  const GraphShape dims{layout.batch, layout.heads, layout.seq_len, layout.head_dim};
  d_query_sum_ = graph_.memory(dims, contiguous(dims), CUDNN_DATA_FLOAT);
  graph_.matmul(d_scores, key, d_query_sum_);
  graph_.convert(*d_query_sum_, d_query_);
}

Result<void> AttentionBackwardPlan::build(const CudnnTarget& target, std::int64_t workspace_bytes) {
  MFSDP_LET(plan, graph_.build(target, workspace_bytes));
  plan_ = std::move(plan);
  return {};
}

template <class T>
Result<void> AttentionBackwardPlan::run(cudnnHandle_t handle,
                                        const kernels::AttentionBackward<T>& k) const {
  std::vector<GraphMemory> operands{{query_, k.query.data},
                                    {key_, k.key.data},
                                    {value_, k.value.data},
                                    {output_, k.output.data},
                                    {d_output_, k.d_output.data},
                                    {log_sum_exp_, k.log_sum_exp},
                                    {d_query_, k.d_query.data},
                                    {d_key_, k.d_key.data},
                                    {d_value_, k.d_value.data},
                                    {row_sums_, k.row_sums},
                                    {scale_tensor_, &scale_},
                                    {masked_, &kMasked},
                                    {one_, &kOne}};
  add_memory(terms_, k.shape.positions, operands);
  if (d_query_sum_) operands.push_back({*d_query_sum_, k.d_query_sum});
  return plan_->run(handle, operands, k.workspace);
}

#define MFSDP_INSTANTIATE(T)                                                                  \
  template AttentionLayout layout_of(const kernels::AttentionForward<T>&);                    \
  template AttentionBackwardLayout layout_of(const kernels::AttentionBackward<T>&);           \
  template Result<void> AttentionForwardPlan::run(cudnnHandle_t,                              \
                                                  const kernels::AttentionForward<T>&) const; \
  template Result<void> AttentionBackwardPlan::run(cudnnHandle_t,                             \
                                                   const kernels::AttentionBackward<T>&) const;
MFSDP_INSTANTIATE(Bf16)
MFSDP_INSTANTIATE(Fp16)
#undef MFSDP_INSTANTIATE

}  // namespace mfsdp::cuda
