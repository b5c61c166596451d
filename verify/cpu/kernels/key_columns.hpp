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
    std::copy_n(k.query.data + row * k.query.row, queries, to);
    std::copy_n(k.key_value + row * others, others, to + queries);
  }
}

/// Calls `visit` with each row of each part of the rank's head: its columns of keys, then those of
/// values, in the part and in a row of heads.
template <class T>
void for_key_parts(const KeyParts& keys, T* parts, auto visit) {
  const std::int64_t cols = keys.key_cols;
  for (std::int64_t holder = 0; holder < keys.holders; ++holder)
    for (std::int64_t row = 0; row < keys.rows; ++row) {
      T* const part = parts + ((keys.first() + holder) * keys.rows + row) * 2 * cols;
      const std::int64_t key = row * keys.cols + keys.query_cols() + holder * cols;
      visit(part, key);
      visit(part + cols, key + keys.head_cols());
    }
}

template <class T>
void join_key_parts(const JoinKeyParts<T>& k) {
  const std::int64_t queries = k.keys.query_cols();
  for (std::int64_t row = 0; row < k.keys.rows; ++row)
    std::copy_n(k.query.data + row * k.query.row, queries, k.output + row * k.keys.cols);
  for_key_parts(k.keys, k.parts, [&](const T* part, std::int64_t place) {
    std::copy_n(part, k.keys.key_cols, k.output + place);
  });
}

template <class T>
void split_key_parts(const SplitKeyParts<T>& k) {
  std::fill_n(k.parts, k.keys.peers * k.keys.rows * 2 * k.keys.key_cols, T(0));
  for_key_parts(k.keys, k.parts, [&](T* part, std::int64_t place) {
    std::copy_n(k.input + place, k.keys.key_cols, part);
  });
}

}  // namespace mfsdp::kernels
