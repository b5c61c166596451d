// Keys and values of a rank's tokens in rows of their own, as ranks that share a sequence send them.
#pragma once

#include <cstdint>

#include "core/plan/kernels/element_types.hpp"
#include "core/plan/kernels/matrix.hpp"

namespace mfsdp::kernels {

/// Rows of queries, then `key_cols` columns of keys and as many of values.
struct KeyColumns {
  std::int64_t rows = 0;
  std::int64_t query_cols = 0;
  std::int64_t key_cols = 0;

  void state(auto& op) {
    op.attribute("key_cols", key_cols);
    op.attribute("rows", rows);
  }
};

/// output[row] = key[row], value[row]
template <class T>
struct TakeKeys {
  KeyColumns columns;
  Matrix<const T> key, value;  ///< columns of wider rows
  T* output = nullptr;         ///< [rows, 2 key_cols]

  void state(auto& op) {
    columns.state(op);
    op.reads("key", key, {"rows", "key_cols"});
    op.reads("value", value, {"rows", "key_cols"});
    op.writes("output", output, {"rows", {2, "key_cols"}});
  }
};

/// output[row] = query[row], key_value[row]
template <class T>
struct JoinKeys {
  KeyColumns columns;
  Matrix<const T> query;         ///< [rows, query_cols]
  const T* key_value = nullptr;  ///< [rows, 2 key_cols]
  T* output = nullptr;           ///< [rows, query_cols + 2 key_cols]

  void state(auto& op) {
    std::int64_t cols = 0;
    columns.state(op);
    op.attribute("cols", cols);
    op.attribute("query_cols", columns.query_cols);
    op.reads("query", query, {"rows", "query_cols"});
    op.reads("key_value", key_value, {"rows", {2, "key_cols"}});
    op.writes("output", output, {"rows", "cols"});
    op.expect(cols == columns.query_cols + 2 * columns.key_cols, "output", "expected ",
              columns.query_cols, " columns and twice ", columns.key_cols, ", got ", cols);
  }
};

/// Where several ranks hold the columns of one head of keys and one of values. Each has equal parts
/// of both, [rows, 2 key_cols], and the parts of all `peers` ranks lie in the order of ranks.
struct KeyParts {
  std::int64_t rows = 0;
  std::int64_t cols = 0;      ///< of a row with whole heads: queries, a key, a value
  std::int64_t key_cols = 0;  ///< of a part
  std::int64_t holders = 1;   ///< of one head: ranks that follow each other
  std::int64_t peers = 1;
  std::int64_t rank = 0;
  bool is_stated = false;  ///< the rank

  [[nodiscard]] constexpr std::int64_t query_cols() const { return cols - 2 * head_cols(); }
  [[nodiscard]] constexpr std::int64_t head_cols() const { return holders * key_cols; }
  /// The first of the ranks that hold this rank's head.
  [[nodiscard]] constexpr std::int64_t first() const { return rank / holders * holders; }

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("holders", holders);
    op.attribute("key_cols", key_cols);
    op.attribute("peers", peers);
    op.attribute("rows", rows);
    op.rank_attribute_if_any("rank", rank, is_stated);
  }
  void check(auto& op) {
    op.expect(is_stated && holders >= 1 && peers % holders == 0 && rank >= 0 && rank < peers,
              "parts", "expected one of ", peers, " ranks, ", holders, " for each head, got ",
              rank);
    op.expect(query_cols() >= 0, "parts", "expected at least ", 2 * head_cols(),
              " columns in a row, got ", cols);
  }
};

/// output[row] = the queries of `input`, then the rank's head of keys and that of values.
template <class T>
struct JoinKeyParts {
  KeyParts keys;
  Matrix<const T> query;     ///< [rows, query_cols()]
  const T* parts = nullptr;  ///< [peers * rows, 2 key_cols]
  T* output = nullptr;       ///< [rows, cols]

  void state(auto& op) {
    std::int64_t query_cols = 0;
    keys.state(op);
    op.attribute("query_cols", query_cols);
    op.reads("query", query, {"rows", "query_cols"});
    op.reads("parts", parts, {{"peers", "rows"}, {2, "key_cols"}});
    op.writes("output", output, {"rows", "cols"});
    keys.check(op);
    op.expect(query_cols == keys.query_cols(), "query", "expected ", keys.query_cols(),
              " columns, got ", query_cols);
  }
};

/// The other way: parts of the rank's head, and 0 for those of all others.
template <class T>
struct SplitKeyParts {
  KeyParts keys;
  const T* input = nullptr;  ///< [rows, cols]
  T* parts = nullptr;        ///< [peers * rows, 2 key_cols]

  void state(auto& op) {
    keys.state(op);
    op.reads("input", input, {"rows", "cols"});
    op.writes("parts", parts, {{"peers", "rows"}, {2, "key_cols"}});
    keys.check(op);
  }
};

}  // namespace mfsdp::kernels
