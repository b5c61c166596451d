// RMS norms, layer norms and column sums on CUDA, for bf16, fp16 and fp32. Each function queues its
// launches on the stream and returns; none allocates. Equal calls give equal bits. --exact-sums
// requires `outlier`.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/kernels/norm.hpp"
#include "gpu_backend/cuda/kernels/exact_outlier.hpp"

namespace mfsdp::cuda {

template <class T>
[[nodiscard]] Result<void> rms_norm_forward(const kernels::RmsNormForward<T>& k,
                                            cudaStream_t stream);

/// One block for each row of partials. Under --exact-sums pieces are processed consecutively, with
/// at least two rows each; the first row of partials is their sum, the others end as 0.
template <class T>
[[nodiscard]] Result<void> rms_norm_backward(const kernels::RmsNormBackward<T>& k,
                                             cudaStream_t stream, ExactOutlier* outlier = nullptr);

template <class T>
[[nodiscard]] Result<void> layer_norm_forward(const kernels::LayerNormForward<T>& k,
                                              cudaStream_t stream);

/// As rms_norm_backward; under --exact-sums the first row of partials is the sum of the weight's,
/// the last that of the bias's.
template <class T>
[[nodiscard]] Result<void> layer_norm_backward(const kernels::LayerNormBackward<T>& k,
                                               cudaStream_t stream,
                                               ExactOutlier* outlier = nullptr);

/// norm_weight_grad and, with partials, bias_grad. G: bf16, fp16 or fp32.
template <class T, class G>
[[nodiscard]] Result<void> column_sums(const kernels::ColumnSums<T, G>& k, cudaStream_t stream,
                                       ExactOutlier* outlier = nullptr);

}  // namespace mfsdp::cuda
