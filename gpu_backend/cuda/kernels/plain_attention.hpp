// Causal attention that cuDNN does not have, for tests and small models, one warp per row: in fp32,
// and in 16 bits of a part of each sequence.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/kernels/attention.hpp"

namespace mfsdp::cuda {

/// T: float, Bf16 or Fp16. Errors: a head_dim over 256.
template <class T>
[[nodiscard]] Result<void> plain_attention_forward(const kernels::AttentionForward<T>& k,
                                                   cudaStream_t stream);

/// Equal calls give equal bits. Uses only the scratch row_sums.
template <class T>
[[nodiscard]] Result<void> plain_attention_backward(const kernels::AttentionBackward<T>& k,
                                                    cudaStream_t stream);

}  // namespace mfsdp::cuda
