// Sums over the steps of a ring (core/plan/kernels/ring.hpp), and rows of keys and values
// (core/plan/kernels/key_columns.hpp), on CUDA, for bf16, fp16 and fp32.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/kernels/key_columns.hpp"
#include "core/plan/kernels/ring.hpp"

namespace mfsdp::cuda {

template <class T>
[[nodiscard]] Result<void> attention_merge(const kernels::AttentionMerge<T>& k,
                                           cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> add_rows(const kernels::AddRows<T>& k, cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> take_keys(const kernels::TakeKeys<T>& k, cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> join_keys(const kernels::JoinKeys<T>& k, cudaStream_t stream);

}  // namespace mfsdp::cuda
