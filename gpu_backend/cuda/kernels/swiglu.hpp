// SwiGLU, GeGLU and GELU on CUDA, for bf16, fp16 and fp32. Each queues one launch on the stream and
// returns, after a memset where there is an `amax`.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/kernels/swiglu.hpp"

namespace mfsdp::cuda {

template <class T>
[[nodiscard]] Result<void> swiglu_forward(const kernels::SwigluForward<T>& k, cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> swiglu_backward(const kernels::SwigluBackward<T>& k,
                                           cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> geglu_forward(const kernels::SwigluForward<T>& k, cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> geglu_backward(const kernels::SwigluBackward<T>& k, cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> gelu_forward(const kernels::GeluForward<T>& k, cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> gelu_backward(const kernels::GeluBackward<T>& k, cudaStream_t stream);

}  // namespace mfsdp::cuda
