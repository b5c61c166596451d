// Causal attention in fp32, which cuDNN does not have: for tests and small models, one warp per
// row.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/kernels/attention.hpp"

namespace mfsdp::cuda {

/// Errors: a head_dim over 256.
[[nodiscard]] Result<void> plain_attention_forward(const kernels::AttentionForward<float>& k,
                                                   cudaStream_t stream);

/// Equal calls give equal bits. Uses only the scratch row_sums.
[[nodiscard]] Result<void> plain_attention_backward(const kernels::AttentionBackward<float>& k,
                                                    cudaStream_t stream);

}  // namespace mfsdp::cuda
