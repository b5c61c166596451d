// What the kernels of causal attention with grouped key and value heads take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/runtime/scalar.hpp"

namespace mfsdp::kernels {

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t heads = 0;     ///< of queries, a multiple of kv_heads
  std::int64_t kv_heads = 0;  ///< each serves heads / kv_heads query heads in a row
  std::int64_t seq_len = 0;
  std::int64_t head_dim = 0;
  std::int64_t value_dim = 0;  ///< of a head's values and output; 0: head_dim
  std::int64_t window = 0;     ///< tokens that a query sees, its own the last; 0: all up to its own
  double query_scalar = 0;     ///< scores are divided by its root; 0 means head_dim
  double score_cap = 0;        ///< scores s become cap * tanh(s / cap); 0: they stay
  /// [batch * seq] of each token in its document, where a query sees its own document alone; null:
  /// a sequence is one document. In each sequence they begin with 0, and go on by 1 or begin anew.
  const std::int32_t* positions = nullptr;

  [[nodiscard]] constexpr std::int64_t values() const {
    return value_dim != 0 ? value_dim : head_dim;
  }
  /// The place in sequence `b` where the document begins that has a token at `place`.
  [[nodiscard]] constexpr std::int64_t document_begin(std::int64_t b, std::int64_t place) const {
    return positions == nullptr ? 0 : place - positions[b * seq_len + place];
  }
  /// The first place in sequence `b` that the query at `place` sees.
  [[nodiscard]] constexpr std::int64_t first_seen(std::int64_t b, std::int64_t place) const {
    const std::int64_t first = window > 0 && place >= window ? place - window + 1 : 0;
    const std::int64_t document = document_begin(b, place);
    return document > first ? document : first;
  }
  /// Its root divides scores.
  template <class R>
  [[nodiscard]] constexpr R divisor() const {
    return query_scalar > 0 ? static_cast<R>(query_scalar) : static_cast<R>(head_dim);
  }
};

/// A view [batch, heads, seq, head_dim]; strides in elements, the last one is 1.
template <class T>
struct HeadView {
  T* data = nullptr;
  std::int64_t batch = 0;
  std::int64_t head = 0;
  std::int64_t position = 0;

  [[nodiscard]] constexpr T* at(std::int64_t b, std::int64_t h) const {
    return data + b * batch + h * head;
  }
};

template <class T>
struct AttentionForward {
  AttentionShape shape;
  HeadView<const T> query, key, value;
  HeadView<T> output;
  Real<T>* log_sum_exp = nullptr;  ///< [batch * seq, heads]
  /// Scratch; empty where a call has none, as not every machine needs it.
  std::span<std::byte> workspace = {};
};

template <class T>
struct AttentionBackward {
  AttentionShape shape;
  HeadView<const T> query, key, value, output, d_output;
  const Real<T>* log_sum_exp = nullptr;  ///< [batch * seq, heads]
  HeadView<T> d_query, d_key, d_value;
  bool deterministic = false;  ///< equal calls must give equal bits
  // Scratch; null or empty where a call has none, as not every machine needs it.
  Real<T>* d_query_sum = nullptr;  ///< [batch * seq, heads * head_dim]
  Real<T>* row_sums = nullptr;     ///< [batch * seq, heads]
  std::span<std::byte> workspace = {};
};

/// A token's row of query heads, then key heads, then value heads, of latent attention: key and
/// value of a head stand side by side, but for the key's last elements, `turned` of them, which are
/// those of the latent row behind its vector and all heads'. They turn by RoPE in pairs of
/// neighbours, as the last ones of each query do.
struct LatentShape {
  std::int64_t rows = 0;     ///< tokens
  std::int64_t seq_len = 0;  ///< positions begin anew after so many
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;                ///< of queries and keys
  std::int64_t value_dim = 0;               ///< of values
  std::int64_t turned = 0;                  ///< even
  const std::int32_t* positions = nullptr;  ///< as in RopeShape

  [[nodiscard]] constexpr std::int64_t kept() const { return head_dim - turned; }
  [[nodiscard]] constexpr std::int64_t position(std::int64_t token) const {
    return positions == nullptr ? token % seq_len : positions[token];
  }
};

template <class T, class Table = float>
struct LatentHeadsForward {
  LatentShape shape;
  std::int64_t latent_width = 0;
  const T* query = nullptr;      ///< [rows, heads * head_dim]
  const T* key_value = nullptr;  ///< [rows, heads * (kept + value_dim)]
  const T* latent = nullptr;     ///< [rows, latent_width]
  const Table* table = nullptr;  ///< [seq_len, turned]
  T* output = nullptr;           ///< [rows, heads * (2 head_dim + value_dim)]
};

template <class T, class Table = float>
struct LatentHeadsBackward {
  LatentShape shape;
  const T* d_output = nullptr;
  const Table* table = nullptr;
  T* d_query = nullptr;
  T* d_key_value = nullptr;
  T* d_turned = nullptr;  ///< [rows, turned]: of all heads
};

/// Each head has a sink, a score beside those of the tokens that a query sees: what attention has
/// made without it becomes less by the share of the others.
template <class T>
struct SinkForward {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  T* output = nullptr;             ///< [rows, heads * head_dim]
  Real<T>* log_sum_exp = nullptr;  ///< [rows, heads]
  const T* sinks = nullptr;        ///< [heads]
};

/// d_sinks = -exp(sink - log_sum_exp) * sum over a head of d_output * output, of what the above
/// makes.
template <class T>
struct SinkBackward {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  const T* output = nullptr;
  const T* d_output = nullptr;
  const Real<T>* log_sum_exp = nullptr;
  const T* sinks = nullptr;
  T* d_sinks = nullptr;  ///< [rows, heads]
};

}  // namespace mfsdp::kernels
