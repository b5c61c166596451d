// Attention sinks (core/plan/kernels/attention.hpp) on CUDA, for bf16, fp16 and fp32: they change
// the result of any attention kernel and are independent of it.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/kernels/attention.hpp"

namespace mfsdp::cuda {

template <class T>
[[nodiscard]] Result<void> sink_forward(const kernels::SinkForward<T>& k, cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> sink_backward(const kernels::SinkBackward<T>& k, cudaStream_t stream);

}  // namespace mfsdp::cuda
