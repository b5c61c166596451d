// RMS norms and column sums on CUDA, for bf16 and fp32. Each queues its launches on the stream and
// returns; none allocates. Equal calls give equal bits.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/runtime/calls/norm.hpp"

namespace mfsdp::cuda {

template <class T>
[[nodiscard]] Result<void> rms_norm_forward(const kernels::RmsNormForward<T>& k,
                                            cudaStream_t stream);

/// A block for each row of partials.
template <class T>
[[nodiscard]] Result<void> rms_norm_backward(const kernels::RmsNormBackward<T>& k,
                                             cudaStream_t stream);

/// norm_weight_grad and, with partials, bias_grad. G: bf16 or fp32.
template <class T, class G>
[[nodiscard]] Result<void> column_sums(const kernels::ColumnSums<T, G>& k, cudaStream_t stream);

}  // namespace mfsdp::cuda
