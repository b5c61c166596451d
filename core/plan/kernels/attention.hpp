// Causal attention with grouped key and value heads; latent attention; attention sinks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/plan/kernel_costs.hpp"
#include "core/plan/kernel_spec.hpp"
#include "core/plan/kernels/element_types.hpp"
#include "core/plan/kernels/operand_field.hpp"
#include "core/plan/kernels/sequence_share.hpp"

namespace mfsdp::kernels {

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t heads = 0;     ///< of queries, a multiple of kv_heads
  std::int64_t kv_heads = 0;  ///< each serves heads / kv_heads query heads in a row
  std::int64_t seq_len = 0;   ///< tokens of a sequence, which are its keys
  std::int64_t head_dim = 0;
  SequenceShare share = {};    ///< whose tokens are the queries
  std::int64_t key_parts = 0;  ///< parts whose tokens are the keys: 1, or 0 for all
  std::int64_t shift = 0;      ///< the one part is as many before that of the queries, around
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
  /// Query rows of a sequence.
  [[nodiscard]] constexpr std::int64_t queries() const { return share.rows(seq_len); }
  /// The place in its sequence of a query's row.
  [[nodiscard]] constexpr std::int64_t place(std::int64_t row) const {
    return share.place(row, seq_len);
  }
  [[nodiscard]] constexpr bool has_all_keys() const { return key_parts == 0; }
  /// Key rows of a sequence.
  [[nodiscard]] constexpr std::int64_t keys() const {
    return has_all_keys() ? seq_len : share.rows(seq_len);
  }
  /// The row of the i-th key in the order of places.
  [[nodiscard]] constexpr std::int64_t key_row(std::int64_t i) const {
    return has_all_keys() ? share.gathered_row(i, seq_len) : i;
  }
  /// Keys at places before this one.
  [[nodiscard]] constexpr std::int64_t keys_before(std::int64_t place) const {
    return has_all_keys() ? place : share.before(shift).rows_until(place, seq_len);
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

  void state(auto& op) {
    op.attribute("batch", batch);
    op.attribute("head_dim", head_dim);
    op.attribute("heads", heads);
    op.attribute("kv_heads", kv_heads);
    op.attribute("seq", seq_len);
    op.attribute_if_any("query_scalar", query_scalar);
    op.attribute_if_any("score_cap", score_cap);
    op.attribute_if_any("value_dim", value_dim);
    op.attribute_if_any("window", window);
    share.state(op);
    share.expect_chunks(op, seq_len);
    op.attribute_if_any("key_parts", key_parts);
    op.attribute_if_any("shift", shift);
    op.expect(has_all_keys() ? shift == 0
                             : key_parts == 1 && share.is_part && shift >= 0 && shift < share.parts,
              "key", "expected the keys of one part of ", share.parts, ", got shift ", shift);
    op.expect(share.is_whole() || key_parts == 1 || batch == 1, "query",
              "expected one sequence, got ", batch);
    op.expect(kv_heads >= 1 && heads % kv_heads == 0, "query",
              "expected heads that are a multiple of kv_heads, got ", heads, " and ", kv_heads);
    op.let("value_dim", values());
    op.let("qkv_width", qkv_width());
    op.let("queries", queries());
    op.let("keys", keys());
  }
  void state_positions(auto& op) {
    op.reads("positions", positions, {{"batch", "seq"}}, {.optional = true});
  }

  /// Columns of a token's row of query heads, then key heads, then value heads.
  [[nodiscard]] constexpr std::int64_t qkv_width() const {
    return heads * head_dim + key_value_width();
  }
  /// Columns of a row of key heads, then value heads.
  [[nodiscard]] constexpr std::int64_t key_value_width() const {
    return kv_heads * (head_dim + values());
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

}  // namespace mfsdp::kernels

template <class T>
struct mfsdp::OperandField<mfsdp::kernels::HeadView<T>> {
  using Element = T;
  static constexpr OperandLayout layout = OperandLayout::strided;
  static void set(kernels::HeadView<T>& field, T* data, OperandSizes /*shape*/,
                  OperandSizes strides) {
    field = {.data = data, .batch = strides[0], .head = strides[1], .position = strides[2]};
  }
};

namespace mfsdp::kernels {

/// Heads side by side in rows of `row` elements, `rows` of each sequence, from column `col` on.
template <class T>
[[nodiscard]] constexpr HeadView<T> heads_in_rows(T* data, std::int64_t rows, std::int64_t head_dim,
                                                  std::int64_t row, std::int64_t col) {
  return {.data = data == nullptr ? nullptr : data + col,
          .batch = rows * row,
          .head = head_dim,
          .position = row};
}

/// output = softmax(query * key^T / sqrt(divisor)) * value, of the keys that a query sees.
template <class T>
struct AttentionForward {
  AttentionShape shape;
  HeadView<const T> query, key, value;
  HeadView<T> output;
  Real<T>* log_sum_exp = nullptr;  ///< [batch * queries, heads]
  /// Scratch; empty where a call has none, as not every machine needs it.
  std::span<std::byte> workspace = {};

  void state(auto& op) {
    T* rows = nullptr;
    op.unread("deterministic");
    shape.state(op);
    op.reads("query", query, {"batch", "heads", "queries", "head_dim"});
    op.reads("key", key, {"batch", "kv_heads", "keys", "head_dim"});
    op.reads("value", value, {"batch", "kv_heads", "keys", "value_dim"});
    op.writes("output", rows, {{"batch", "queries"}, {"heads", "value_dim"}});
    op.writes("log_sum_exp", log_sum_exp, {{"batch", "queries"}, "heads"});
    shape.state_positions(op);
    op.workspace(workspace, costs::attention_forward_workspace);
    op.flops(costs::attention_forward);
    output = heads_in_rows(rows, shape.queries(), shape.values(), shape.heads * shape.values(), 0);
  }
};

template <class T>
struct AttentionBackward {
  AttentionShape shape;
  HeadView<const T> query, key, value, output, d_output;
  const Real<T>* log_sum_exp = nullptr;  ///< [batch * queries, heads]
  HeadView<T> d_query, d_key, d_value;
  bool deterministic = false;  ///< equal calls must give equal bits
  // Scratch; null or empty where a call has none, as not every machine needs it.
  Real<T>* d_query_sum = nullptr;  ///< [batch * queries, heads * head_dim]
  Real<T>* row_sums = nullptr;     ///< [batch * queries, heads]
  std::span<std::byte> workspace = {};

  void state(auto& op) {
    const T* made = nullptr;
    const T* d_made = nullptr;
    std::span<T> d_qkv, d_queries, d_keys;  // empty where a call has none
    op.attribute("deterministic", deterministic);
    shape.state(op);
    op.let("key_value_width", shape.key_value_width());
    op.reads("query", query, {"batch", "heads", "queries", "head_dim"});
    op.reads("key", key, {"batch", "kv_heads", "keys", "head_dim"});
    op.reads("value", value, {"batch", "kv_heads", "keys", "value_dim"});
    op.reads("output", made, {{"batch", "queries"}, {"heads", "value_dim"}});
    op.reads("d_output", d_made, {{"batch", "queries"}, {"heads", "value_dim"}});
    op.reads("log_sum_exp", log_sum_exp, {{"batch", "queries"}, "heads"});
    op.writes("d_qkv", d_qkv, {{"batch", "seq"}, "qkv_width"}, {.optional = true});
    op.writes("d_query", d_queries, {{"batch", "queries"}, {"heads", "head_dim"}},
              {.optional = true});
    op.writes("d_key_value", d_keys, {{"batch", "keys"}, "key_value_width"}, {.optional = true});
    op.scratch_if_any("d_query_sum", d_query_sum, {{"batch", "queries"}, {"heads", "head_dim"}});
    op.scratch_if_any("row_sums", row_sums, {{"batch", "queries"}, "heads"});
    shape.state_positions(op);
    op.workspace(workspace, costs::attention_backward_workspace);
    // 2 of its 2.5 forwards: scores are computed again.
    op.flops(costs::attention_backward, {.num = 4, .den = 5});
    const bool is_shared = !shape.share.is_whole();
    op.expect(
        d_qkv.empty() == is_shared && d_queries.empty() != is_shared && d_keys.empty() != is_shared,
        "query", "expected d_qkv, or d_query and d_key_value of a part of a sequence");
    const std::int64_t queries = shape.heads * shape.head_dim;
    const std::int64_t keys = shape.kv_heads * shape.head_dim;
    const std::int64_t width = shape.heads * shape.values();
    const std::int64_t rows = shape.queries();
    output = heads_in_rows(made, rows, shape.values(), width, 0);
    d_output = heads_in_rows(d_made, rows, shape.values(), width, 0);
    // For whole sequences the three are columns of one row.
    const std::int64_t row = is_shared ? shape.key_value_width() : shape.qkv_width();
    const std::int64_t begin = is_shared ? 0 : queries;
    T* const key_rows = (is_shared ? d_keys : d_qkv).data();
    d_query = heads_in_rows((is_shared ? d_queries : d_qkv).data(), rows, shape.head_dim,
                            is_shared ? queries : row, 0);
    d_key = heads_in_rows(key_rows, shape.keys(), shape.head_dim, row, begin);
    d_value = heads_in_rows(key_rows, shape.keys(), shape.values(), row, begin + keys);
  }
};

/// Latent attention: a token's row has query heads, then key heads, then value heads. Key and value
/// of a head are adjacent, except the last `turned` elements of a key. All heads share those
/// elements, which follow the vector in the latent row. RoPE rotates them in pairs of neighbours,
/// as it does the last elements of each query.
struct LatentShape {
  std::int64_t rows = 0;     ///< tokens
  std::int64_t seq_len = 0;  ///< tokens of a sequence; the next one begins at position 0
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;                ///< of queries and keys
  std::int64_t value_dim = 0;               ///< of values
  std::int64_t turned = 0;                  ///< even
  const std::int32_t* positions = nullptr;  ///< as in RopeShape

  [[nodiscard]] constexpr std::int64_t kept() const { return head_dim - turned; }
  [[nodiscard]] constexpr std::int64_t position(std::int64_t token) const {
    return positions == nullptr ? token % seq_len : positions[token];
  }

  void state(auto& op) {
    op.attribute("head_dim", head_dim);
    op.attribute("heads", heads);
    op.attribute("rows", rows);
  }
  /// Sizes that follow from the table, and their consistency; `table`: [seq_len, `turned`].
  void state_table(auto& op, const float*& table) {
    std::int64_t key_value_dim = 0;
    std::int64_t qkv_dim = 0;
    op.attribute("key_value_dim", key_value_dim);
    op.attribute("qkv_dim", qkv_dim);
    op.reads("rope_table", table, {"seq", "rotated_dim"}, {.element = Element::fp32});
    op.reads("positions", positions, {"rows"}, {.optional = true});
    op.dim("seq", seq_len);
    op.dim("rotated_dim", turned);
    value_dim = key_value_dim - kept();
    op.expect(turned % 2 == 0 && turned <= head_dim, "rope_table",
              "expected an even number of at most ", head_dim, " elements that rotate, got ",
              turned);
    op.expect(value_dim >= 1 && qkv_dim == 2 * head_dim + value_dim, "rope_table",
              "expected keys and values that fit beside the elements that rotate");
  }
};

/// Puts the heads of queries, keys and values of a token side by side.
template <class T>
struct LatentHeadsForward {
  LatentShape shape;
  std::int64_t latent_width = 0;
  const T* query = nullptr;      ///< [rows, heads * head_dim]
  const T* key_value = nullptr;  ///< [rows, heads * (kept + value_dim)]
  const T* latent = nullptr;
  const float* table = nullptr;  ///< [seq_len, `turned`]
  T* output = nullptr;           ///< [rows, heads * (2 head_dim + value_dim)]

  void state(auto& op) {
    shape.state(op);
    op.attribute("latent_width", latent_width);
    op.reads("query", query, {"rows", {"heads", "head_dim"}});
    op.reads("key_value", key_value, {"rows", {"heads", "key_value_dim"}});
    op.reads("latent", latent, {"rows", "latent_width"});
    shape.state_table(op, table);
    op.writes("output", output, {"rows", {"heads", "qkv_dim"}});
    op.expect(latent_width >= shape.turned, "latent",
              "expected the elements that rotate after the latent vector");
  }
};

template <class T>
struct LatentHeadsBackward {
  LatentShape shape;
  const T* d_output = nullptr;
  const float* table = nullptr;
  T* d_query = nullptr;
  T* d_key_value = nullptr;
  T* d_turned = nullptr;  ///< [rows, `turned`]: of all heads

  void state(auto& op) {
    shape.state(op);
    op.reads("d_output", d_output, {"rows", {"heads", "qkv_dim"}});
    shape.state_table(op, table);
    op.writes("d_query", d_query, {"rows", {"heads", "head_dim"}});
    op.writes("d_key_value", d_key_value, {"rows", {"heads", "key_value_dim"}});
    op.writes("d_turned", d_turned, {"rows", "rotated_dim"});
  }
};

/// Each head has a sink, a score beside those of the tokens that a query sees: the output of
/// attention shrinks by the share of the others.
template <class T>
struct SinkForward {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  T* output = nullptr;
  Real<T>* log_sum_exp = nullptr;
  const T* sinks = nullptr;

  void state(auto& op) {
    op.attribute("head_dim", head_dim);
    op.attribute("heads", heads);
    op.attribute("rows", rows);
    op.updates("output", output, {"rows", {"heads", "head_dim"}});
    op.updates("log_sum_exp", log_sum_exp, {"rows", "heads"});
    op.reads("weight", sinks, {"heads"});
  }
};

/// d_sinks = -exp(sink - log_sum_exp) * sum over a head of d_output * output, with the output and
/// log_sum_exp of SinkForward.
template <class T>
struct SinkBackward {
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t head_dim = 0;
  const T* output = nullptr;
  const T* d_output = nullptr;
  const Real<T>* log_sum_exp = nullptr;
  const T* sinks = nullptr;
  T* d_sinks = nullptr;

  void state(auto& op) {
    op.attribute("head_dim", head_dim);
    op.attribute("heads", heads);
    op.attribute("rows", rows);
    op.reads("output", output, {"rows", {"heads", "head_dim"}});
    op.reads("d_output", d_output, {"rows", {"heads", "head_dim"}});
    op.reads("log_sum_exp", log_sum_exp, {"rows", "heads"});
    op.reads("weight", sinks, {"heads"});
    op.writes("d_sinks", d_sinks, {"rows", "heads"});
  }
};

}  // namespace mfsdp::kernels
