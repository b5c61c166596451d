// Rows of keys and values (core/plan/kernels/key_columns.hpp) on CUDA: copies of columns.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/kernels/key_columns.hpp"
#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {

/// Copies `cols` columns of `rows` rows; `to_row` and `from_row`: elements from one row to the next.
template <class T>
[[nodiscard]] Result<void> copy_columns(T* to, std::int64_t to_row, const T* from,
                                        std::int64_t from_row, std::int64_t cols, std::int64_t rows,
                                        cudaStream_t stream) {
  const auto bytes = [](std::int64_t elements) {
    return static_cast<std::size_t>(elements) * sizeof(T);
  };
  return check(cudaMemcpy2DAsync(to, bytes(to_row), from, bytes(from_row), bytes(cols),
                                 static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice, stream),
               "cudaMemcpy2DAsync of keys");
}

template <class T>
[[nodiscard]] Result<void> take_keys(const kernels::TakeKeys<T>& k, cudaStream_t stream) {
  const std::int64_t cols = k.columns.key_cols;
  MFSDP_TRY(copy_columns(k.output, 2 * cols, k.key.data, k.key.row, cols, k.columns.rows, stream));
  return copy_columns(k.output + cols, 2 * cols, k.value.data, k.value.row, cols, k.columns.rows,
                      stream);
}

template <class T>
[[nodiscard]] Result<void> join_keys(const kernels::JoinKeys<T>& k, cudaStream_t stream) {
  const std::int64_t queries = k.columns.query_cols;
  const std::int64_t keys = 2 * k.columns.key_cols;
  const std::int64_t row = queries + keys;
  MFSDP_TRY(copy_columns(k.output, row, k.query, queries, queries, k.columns.rows, stream));
  return copy_columns(k.output + queries, row, k.key_value, keys, keys, k.columns.rows, stream);
}

}  // namespace mfsdp::cuda
