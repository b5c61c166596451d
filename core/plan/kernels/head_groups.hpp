// Rows of heads in groups of heads, for ranks that have the heads of one group each.
#pragma once

#include <cstdint>

namespace mfsdp::kernels {

/// Rows of `cols` columns: those of queries, then `key_cols` of keys and as many of values; or
/// `cols` of queries alone. A group has an equal and consecutive part of each kind.
struct HeadGroups {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t key_cols = 0;
  std::int64_t groups = 0;

  void state(auto& op) {
    op.attribute("cols", cols);
    op.attribute("groups", groups);
    op.attribute_if_any("key_cols", key_cols);
    op.attribute("rows", rows);
    op.expect(groups >= 1 && key_cols >= 0 && key_cols <= cols / 2, "input",
              "expected groups of heads, and no more columns of keys and values than ", cols);
    op.expect(groups < 1 || (key_cols % groups == 0 && query_cols() % groups == 0), "input",
              "expected ", groups, " equal groups of ", query_cols(), " columns of queries and ",
              key_cols, " of keys");
  }

  [[nodiscard]] constexpr std::int64_t query_cols() const { return cols - 2 * key_cols; }
  /// The column of a row of all heads that a group has as column `col` of its own.
  [[nodiscard]] constexpr std::int64_t column(std::int64_t group, std::int64_t col) const {
    const std::int64_t queries = query_cols() / groups;
    const std::int64_t keys = key_cols / groups;
    if (col < queries) return group * queries + col;
    if (col < queries + keys) return query_cols() + group * keys + col - queries;
    return query_cols() + key_cols + group * keys + col - queries - keys;
  }
};

/// output[group][row][col] = input[row][column(group, col)]
template <class T>
struct SplitHeads {
  HeadGroups groups;
  const T* input = nullptr;  ///< [rows, cols]
  T* output = nullptr;       ///< [groups, rows, cols / groups]

  void state(auto& op) {
    groups.state(op);
    op.reads("input", input, {"rows", "cols"});
    op.writes("output", output, {"rows", "cols"});
  }
};

/// output[row][column(group, col)] = input[group][row][col]
template <class T>
struct JoinHeads {
  HeadGroups groups;
  const T* input = nullptr;  ///< [groups, rows, cols / groups]
  T* output = nullptr;       ///< [rows, cols]

  void state(auto& op) {
    groups.state(op);
    op.reads("input", input, {"rows", "cols"});
    op.writes("output", output, {"rows", "cols"});
  }
};

}  // namespace mfsdp::kernels
