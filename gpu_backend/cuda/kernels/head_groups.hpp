// Rows of heads in groups (core/plan/kernels/head_groups.hpp) on CUDA, for bf16, fp16 and fp32.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/kernels/head_groups.hpp"

namespace mfsdp::cuda {

template <class T>
[[nodiscard]] Result<void> split_heads(const kernels::SplitHeads<T>& k, cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> join_heads(const kernels::JoinHeads<T>& k, cudaStream_t stream);

}  // namespace mfsdp::cuda
