// Rows of keys and values (core/plan/kernels/key_columns.hpp) on the CPU.
#pragma once

#include <algorithm>

#include "core/plan/kernels/key_columns.hpp"

namespace mfsdp::kernels {

template <class T>
void take_keys(const TakeKeys<T>& k) {
  const std::int64_t cols = k.columns.key_cols;
  for (std::int64_t row = 0; row < k.columns.rows; ++row) {
    T* const to = k.output + row * 2 * cols;
    std::copy_n(k.key.data + row * k.key.row, cols, to);
    std::copy_n(k.value.data + row * k.value.row, cols, to + cols);
  }
}

template <class T>
void join_keys(const JoinKeys<T>& k) {
  const std::int64_t queries = k.columns.query_cols;
  const std::int64_t others = 2 * k.columns.key_cols;
  for (std::int64_t row = 0; row < k.columns.rows; ++row) {
    T* const to = k.output + row * (queries + others);
    std::copy_n(k.query + row * queries, queries, to);
    std::copy_n(k.key_value + row * others, others, to + queries);
  }
}

}  // namespace mfsdp::kernels
