// Kernels on CUDA that work with token ids and labels. Each queues its launches on the stream and
// returns; none allocates. Equal calls give equal bits.
//
// An id outside the vocabulary is followed nowhere: its row of the output, its loss and its
// gradient become NaN, so that the step's norm is not finite and its update is skipped.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/kernels/tokens.hpp"
#include "gpu_backend/cuda/kernels/exact_outlier.hpp"

namespace mfsdp::cuda {

[[nodiscard]] Result<void> token_copy(const kernels::TokenCopy& k, cudaStream_t stream);

/// T: bf16, fp16 or fp32.
template <class T>
[[nodiscard]] Result<void> embedding_forward(const kernels::EmbeddingForward<T>& k,
                                             cudaStream_t stream);

/// T and G: fp32 and one of bf16 and fp16. Tokens are put in order by counting those before each,
/// which for 8192 tokens costs microseconds and needs no scratch but the order itself (8 of its 24
/// bytes a token); then each token's rows are added up in the order of their places, those of a
/// frequent token in 32 parts. The time to order grows with the square of the tokens. Under
/// --exact-sums, which needs `outlier`, a piece after the other.
template <class T, class G>
[[nodiscard]] Result<void> embedding_backward(const kernels::EmbeddingBackward<T, G>& k,
                                              cudaStream_t stream, ExactOutlier* outlier = nullptr);

/// T and G: bf16, fp16 or fp32. Under --exact-sums each row of a sequence is rounded before it is
/// added.
template <class T, class G>
[[nodiscard]] Result<void> position_embedding_backward(
    const kernels::PositionEmbeddingBackward<T, G>& k, cudaStream_t stream,
    ExactOutlier* outlier = nullptr);

/// T: bf16, fp16 or fp32, const where the loss alone is wanted. A block at a time has a row; what
/// fits is kept in shared memory between the sum of its exponentials and its gradient. The
/// workspace holds a GridScratch.
template <class T>
[[nodiscard]] Result<void> cross_entropy(const kernels::CrossEntropy<T>& k, cudaStream_t stream);

}  // namespace mfsdp::cuda
