// Rotary position embedding (RoPE), with and without a norm of each head.
#pragma once

#include <cstdint>

#include "core/plan/kernel_spec.hpp"
#include "core/plan/kernels/element_types.hpp"
#include "core/plan/kernels/operand_field.hpp"
#include "core/plan/kernels/pieces.hpp"
#include "core/plan/kernels/sequence_share.hpp"

namespace mfsdp::kernels {

/// Rows of tokens, each with heads side by side.
template <class T>
struct HeadRows {
  T* data = nullptr;
  std::int64_t row = 0;   ///< elements from one token to the next
  std::int64_t head = 0;  ///< and from one head to the next

  [[nodiscard]] T* at(std::int64_t token, std::int64_t index) const {
    return data + token * row + index * head;
  }
};

}  // namespace mfsdp::kernels

template <class T>
struct mfsdp::OperandField<mfsdp::kernels::HeadRows<T>> {
  using Element = T;
  static constexpr OperandLayout layout = OperandLayout::strided;
  static void set(kernels::HeadRows<T>& field, T* data, OperandSizes /*shape*/,
                  OperandSizes strides) {
    field = {.data = data, .row = strides[0], .head = strides[1]};
  }
};

namespace mfsdp::kernels {

struct RopeShape {
  std::int64_t tokens = 0;  ///< of all sequences; positions begin anew after seq_len
  std::int64_t seq_len = 0;
  std::int64_t heads = 0;     ///< query heads, then key heads
  std::int64_t head_dim = 0;  ///< even
  /// Elements of a head that rotate, an even number: i of the first half with `turned` / 2 + i.
  std::int64_t turned = 0;
  SequenceShare share = {};  ///< of each sequence, where a rank has only some of its tokens
  /// Of each token of whole sequences in its document, below seq_len; null: positions are places
  /// in sequences.
  const std::int32_t* positions = nullptr;

  /// The row of the table that rotates a token.
  [[nodiscard]] constexpr std::int64_t position(std::int64_t token) const {
    if (share.is_whole()) return positions == nullptr ? token % seq_len : positions[token];
    const std::int64_t rows = share.rows(seq_len);
    const std::int64_t place = share.place(token % rows, seq_len);
    return positions == nullptr ? place : positions[token / rows * seq_len + place];
  }
  /// Tokens of the sequences of which these are tokens.
  [[nodiscard]] constexpr std::int64_t places() const { return tokens * share.parts; }
  /// `count` tokens from `begin` on, which begins a sequence.
  [[nodiscard]] constexpr RopeShape piece(std::int64_t begin, std::int64_t count) const {
    RopeShape part = *this;
    part.tokens = count;
    if (positions != nullptr) part.positions = positions + begin;
    return part;
  }

  /// The table: [seq_len, `turned`]; for each position `turned` / 2 cosines, then the sines.
  void state_table(auto& op, const float*& table) {
    op.reads("rope_table", table, {"seq", "rotated_dim"}, {.element = Element::fp32});
    op.dim("seq", seq_len);
    op.dim("rotated", heads);
    op.dim("head_dim", head_dim);
    op.dim("rotated_dim", turned);
    op.expect(head_dim % 2 == 0, "rope_table", "expected an even head dim");
    op.expect(turned % 2 == 0 && turned <= head_dim, "rope_table",
              "expected rows of an even number of elements, no more than a head's");
    op.expect(seq_len >= 1, "rope_table", "expected at least one position");
  }
  void state_share(auto& op, std::string_view role) {
    share.state(op);
    op.expect(share.is_whole() ||
                  (seq_len >= 1 && places() % seq_len == 0 && seq_len % (2 * share.parts) == 0),
              role, "expected two chunks of each sequence of ", seq_len, " tokens");
  }
  void state_positions(auto& op) {
    op.let("places", places());
    op.reads("positions", positions, {"places"}, {.optional = true});
  }
};

/// Heads of a kernel of RoPE; an operand has the query and key heads of all tokens.
inline constexpr Dims kRotatedHeads{"rows", "rotated", "head_dim"};

/// Rotates all heads in place; gradients backwards.
template <class T>
struct Rope {
  RopeShape shape;
  HeadRows<T> heads;
  const float* table = nullptr;
  bool backwards = false;

  void state_as(auto& op, std::string_view role) {
    op.unread("cols");
    op.attribute("rows", shape.tokens);
    op.updates(role, heads, kRotatedHeads);
    shape.state_table(op, table);
    shape.state_share(op, role);
    shape.state_positions(op);
  }
};
template <class T>
struct RopeForward : Rope<T> {
  void state(auto& op) { this->state_as(op, "query_key"); }
};
template <class T>
struct RopeBackward : Rope<T> {
  void state(auto& op) {
    this->state_as(op, "d_query_key");
    this->backwards = true;
  }
};

/// RMS norms of each query head and each key head, then RoPE.
template <class T, class Table = Real<T>>
struct QkNormRopeForward {
  RopeShape shape;
  std::int64_t query_heads = 0;
  Real<T> epsilon = 0;
  HeadRows<const T> in;
  const Table* table = nullptr;
  const T* query_weight = nullptr;
  const T* key_weight = nullptr;
  Real<T> weight_offset = 0;  ///< as of RmsNormForward
  HeadRows<T> out;
  Real<T>* rstd = nullptr;

  void state(auto& op) {
    op.unread("cols");
    op.attribute("epsilon", epsilon);
    op.attribute("query_heads", query_heads);
    op.attribute("rows", shape.tokens);
    op.attribute_if_any("zero_centered", weight_offset);
    op.reads("query_key", in, kRotatedHeads);
    shape.state_table(op, table);
    op.reads("weight", query_weight, {"head_dim"});
    op.reads("weight", key_weight, {"head_dim"});
    op.writes("output", out, kRotatedHeads);
    op.writes("rstd", rstd, {"rows", "rotated"});
    shape.state_share(op, "query_key");
    shape.state_positions(op);
  }
};

template <class T, class Table = Real<T>>
struct QkNormRopeBackward {
  RopeShape shape;
  std::int64_t query_heads = 0;
  std::int64_t partial_rows = 0;
  HeadRows<T> gradient;  ///< of the rotated heads; becomes that of the linear layer's output
  HeadRows<const T> in;  ///< the linear layer's output
  const Table* table = nullptr;
  const Real<T>* rstd = nullptr;
  const T* query_weight = nullptr;
  const T* key_weight = nullptr;
  Real<T> weight_offset = 0;
  Real<T>* partials = nullptr;  ///< partial_rows of the queries' weight, then as many of the keys'
  Pieces pieces = {};

  void state(auto& op) {
    op.unread("cols");
    op.attribute("query_heads", query_heads);
    op.attribute("rows", shape.tokens);
    op.attribute_if_any("zero_centered", weight_offset);
    op.updates("d_query_key", gradient, kRotatedHeads);
    op.reads("query_key", in, kRotatedHeads);
    shape.state_table(op, table);
    op.reads("rstd", rstd, {"rows", "rotated"});
    op.reads("weight", query_weight, {"head_dim"});
    op.reads("weight", key_weight, {"head_dim"});
    op.writes("partials", partials, {{2, "partial_rows"}, "head_dim"});
    shape.state_share(op, "query_key");
    shape.state_positions(op);
    op.dim("partial_rows", partial_rows);
    op.pieces("rows", "query_key", shape.tokens, pieces);
    op.expect(partial_rows >= 1, "partials", "expected at least two rows");
  }
};

/// The same with one norm over all query heads of a token, and one over all its key heads.
template <class T, class Table = Real<T>>
struct QkRowNormRopeForward {
  RopeShape shape;
  std::int64_t query_heads = 0;
  Real<T> epsilon = 0;
  HeadRows<const T> in;
  const Table* table = nullptr;
  const T* query_weight = nullptr;
  const T* key_weight = nullptr;
  Real<T> weight_offset = 0;
  HeadRows<T> out;
  Real<T>* rstd = nullptr;  ///< of a token's queries, and of its keys

  void state(auto& op) {
    std::int64_t key_heads = 0;
    op.unread("cols");
    op.attribute("epsilon", epsilon);
    op.attribute("key_heads", key_heads);
    op.attribute("query_heads", query_heads);
    op.attribute("rows", shape.tokens);
    op.attribute_if_any("zero_centered", weight_offset);
    op.reads("query_key", in, kRotatedHeads);
    shape.state_table(op, table);
    op.reads("weight", query_weight, {{"query_heads", "head_dim"}});
    op.reads("weight", key_weight, {{"key_heads", "head_dim"}});
    op.writes("output", out, kRotatedHeads);
    op.writes("rstd", rstd, {"rows", 2});
    shape.state_share(op, "query_key");
    shape.state_positions(op);
    op.expect(query_heads + key_heads == shape.heads, "query_key", "expected ",
              query_heads + key_heads, " query and key heads, got ", shape.heads);
  }
};

template <class T, class Table = Real<T>>
struct QkRowNormRopeBackward {
  RopeShape shape;
  std::int64_t query_heads = 0;
  std::int64_t partial_rows = 0;
  HeadRows<T> gradient;  ///< as of QkNormRopeBackward
  HeadRows<const T> in;
  const Table* table = nullptr;
  const Real<T>* rstd = nullptr;
  const T* query_weight = nullptr;
  const T* key_weight = nullptr;
  Real<T> weight_offset = 0;
  /// partial_rows of the queries' weight, then as many of the keys'.
  Real<T>* partials = nullptr;
  Pieces pieces = {};

  void state(auto& op) {
    std::int64_t cols = 0;
    std::int64_t key_heads = 0;
    op.attribute("cols", cols);
    op.attribute("key_heads", key_heads);
    op.attribute("query_heads", query_heads);
    op.attribute("rows", shape.tokens);
    op.attribute_if_any("zero_centered", weight_offset);
    op.updates("d_query_key", gradient, kRotatedHeads);
    op.reads("query_key", in, kRotatedHeads);
    shape.state_table(op, table);
    op.reads("rstd", rstd, {"rows", 2});
    op.reads("weight", query_weight, {{"query_heads", "head_dim"}});
    op.reads("weight", key_weight, {{"key_heads", "head_dim"}});
    op.writes("partials", partials, {"partial_rows", "cols"});
    shape.state_share(op, "query_key");
    shape.state_positions(op);
    op.dim("partial_rows", partial_rows);
    op.pieces("rows", "query_key", shape.tokens, pieces);
    op.expect(partial_rows >= 1, "partials", "expected at least one row");
    op.expect(query_heads + key_heads == shape.heads, "query_key", "expected ",
              query_heads + key_heads, " query and key heads, got ", shape.heads);
    op.expect(cols == shape.heads * shape.head_dim, "partials", "expected rows of all ",
              shape.heads * shape.head_dim, " columns of heads, got ", cols);
  }
};

// Machines keep the table in fp32.
template <class T>
using QkNormRopeForwardCall = QkNormRopeForward<T, float>;
template <class T>
using QkNormRopeBackwardCall = QkNormRopeBackward<T, float>;
template <class T>
using QkRowNormRopeForwardCall = QkRowNormRopeForward<T, float>;
template <class T>
using QkRowNormRopeBackwardCall = QkRowNormRopeBackward<T, float>;

}  // namespace mfsdp::kernels
