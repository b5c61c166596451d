// Rotary position embedding on CUDA, for bf16, fp16 and fp32, with and without norms of queries and
// keys. Each queues its launches on the stream and returns; none allocates. Equal calls give equal
// bits.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/kernels/rope.hpp"
#include "gpu_backend/cuda/kernels/exact_outlier.hpp"

namespace mfsdp::cuda {

template <class T>
[[nodiscard]] Result<void> rope(const kernels::Rope<T>& k, cudaStream_t stream);

/// One block per token. Heads have at most 256 elements, or more if half a head is a power of two
/// of 16-byte packs, at most 32.
template <class T>
[[nodiscard]] Result<void> qk_norm_rope_forward(const kernels::QkNormRopeForward<T, float>& k,
                                                cudaStream_t stream);

/// One block for each row of the queries' partials. Under --exact-sums, which requires `outlier`,
/// pieces are processed consecutively, with at least two tokens each. The first row of partials is
/// the sum of the queries', the last one that of the keys', the others end as 0.
template <class T>
[[nodiscard]] Result<void> qk_norm_rope_backward(const kernels::QkNormRopeBackward<T, float>& k,
                                                 cudaStream_t stream,
                                                 ExactOutlier* outlier = nullptr);

/// Norms over all query heads of a token and over all its key heads. One block per token.
template <class T>
[[nodiscard]] Result<void> qk_row_norm_rope_forward(
    const kernels::QkRowNormRopeForward<T, float>& k, cudaStream_t stream);

/// One block for each row of partials; --exact-sums as above.
template <class T>
[[nodiscard]] Result<void> qk_row_norm_rope_backward(
    const kernels::QkRowNormRopeBackward<T, float>& k, cudaStream_t stream,
    ExactOutlier* outlier = nullptr);

}  // namespace mfsdp::cuda
