// What the kernels of rotary position embedding take, with and without a norm of each head.
#pragma once

#include <cstdint>

#include "core/runtime/calls/pieces.hpp"
#include "core/runtime/scalar.hpp"

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

struct RopeShape {
  std::int64_t tokens = 0;  ///< of all sequences; positions begin anew after seq_len
  std::int64_t seq_len = 0;
  std::int64_t heads = 0;     ///< query heads, then key heads
  std::int64_t head_dim = 0;  ///< even
  /// Elements of a head that are turned, the first ones, with those half as far behind; even.
  std::int64_t turned = 0;
  /// [tokens] of each token in its document, below seq_len; null: positions are places in
  /// sequences.
  const std::int32_t* positions = nullptr;

  /// The row of the table that a token turns by.
  [[nodiscard]] constexpr std::int64_t position(std::int64_t token) const {
    return positions == nullptr ? token % seq_len : positions[token];
  }
  /// `count` tokens from `begin` on, which begins a sequence.
  [[nodiscard]] constexpr RopeShape piece(std::int64_t begin, std::int64_t count) const {
    RopeShape part = *this;
    part.tokens = count;
    if (positions != nullptr) part.positions = positions + begin;
    return part;
  }
};

/// Turns all heads in place, backwards for gradients. `table`: [seq_len, turned], of each position
/// the turned / 2 cosines, then the sines.
template <class T, class Table = float>
struct Rope {
  RopeShape shape;
  HeadRows<T> heads;
  const Table* table = nullptr;
  bool backwards = false;
};

template <class T, class Table = Real<T>>
struct QkNormRopeForward {
  RopeShape shape;
  std::int64_t query_heads = 0;
  Real<T> epsilon = 0;
  HeadRows<const T> in;
  const Table* table = nullptr;
  const T* query_weight = nullptr;  ///< [head_dim]
  const T* key_weight = nullptr;
  Real<T> weight_offset = 0;  ///< as in norm.hpp
  HeadRows<T> out;
  Real<T>* rstd = nullptr;  ///< [tokens, heads]
};

template <class T, class Table = Real<T>>
struct QkNormRopeBackward {
  RopeShape shape;
  std::int64_t query_heads = 0;
  std::int64_t partial_rows = 0;
  HeadRows<T> gradient;  ///< of the turned heads; becomes that of the projection
  HeadRows<const T> in;  ///< the projection
  const Table* table = nullptr;
  const Real<T>* rstd = nullptr;
  const T* query_weight = nullptr;
  const T* key_weight = nullptr;
  Real<T> weight_offset = 0;
  Real<T>* partials = nullptr;  ///< [2 partial_rows, head_dim]: queries', then keys'
  Pieces pieces = {};
};

/// The same with norms over all query heads of a token, and over all its key heads.
template <class T, class Table = Real<T>>
struct QkRowNormRopeForward {
  RopeShape shape;
  std::int64_t query_heads = 0;
  Real<T> epsilon = 0;
  HeadRows<const T> in;
  const Table* table = nullptr;
  const T* query_weight = nullptr;  ///< [query_heads, head_dim]
  const T* key_weight = nullptr;    ///< [heads - query_heads, head_dim]
  Real<T> weight_offset = 0;
  HeadRows<T> out;
  Real<T>* rstd = nullptr;  ///< [tokens, 2]: of queries, of keys
};

template <class T, class Table = Real<T>>
struct QkRowNormRopeBackward {
  RopeShape shape;
  std::int64_t query_heads = 0;
  std::int64_t partial_rows = 0;
  HeadRows<T> gradient;  ///< of the turned heads; becomes that of the projection
  HeadRows<const T> in;  ///< the projection
  const Table* table = nullptr;
  const Real<T>* rstd = nullptr;
  const T* query_weight = nullptr;
  const T* key_weight = nullptr;
  Real<T> weight_offset = 0;
  /// partial_rows of the queries' weight, then as many of the keys'.
  Real<T>* partials = nullptr;
  Pieces pieces = {};
};

}  // namespace mfsdp::kernels
