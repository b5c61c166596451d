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
  const T* query = nullptr;      ///< [rows, query_cols]
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

}  // namespace mfsdp::kernels
