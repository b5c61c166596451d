// Kernels that only latent attention needs (core/plan/kernels/attention.hpp, norm.hpp) on CUDA, for
// bf16, fp16 and fp32.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/kernels/attention.hpp"
#include "core/plan/kernels/norm.hpp"
#include "gpu_backend/cuda/kernels/exact_outlier.hpp"

namespace mfsdp::cuda {

template <class T>
[[nodiscard]] Result<void> latent_heads_forward(const kernels::LatentHeadsForward<T>& k,
                                                cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> latent_heads_backward(const kernels::LatentHeadsBackward<T>& k,
                                                 cudaStream_t stream);

template <class T>
[[nodiscard]] Result<void> latent_norm_forward(const kernels::LatentNormForward<T>& k,
                                               cudaStream_t stream);

/// `outlier`: null without --exact-sums.
template <class T>
[[nodiscard]] Result<void> latent_norm_backward(const kernels::LatentNormBackward<T>& k,
                                                cudaStream_t stream,
                                                ExactOutlier* outlier = nullptr);

}  // namespace mfsdp::cuda
