// Kernels on CUDA for token ids and labels. Each function queues its launches on the stream and
// returns; none allocates. Equal calls give equal bits.
//
// An id outside the vocabulary is never used as an index. Its row of the output, its loss and its
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

/// T and G: fp32 and one of bf16 and fp16. Tokens are ordered by counting those before each. For
/// 8192 tokens this takes microseconds and needs no scratch except the order itself (8 of its 24
/// bytes per token). Then each token's rows are added up in the order of their places, those of a
/// frequent token in 32 parts. The time to order grows with the square of the number of tokens.
/// Under --exact-sums, which requires `outlier`, pieces are processed consecutively.
template <class T, class G>
[[nodiscard]] Result<void> embedding_backward(const kernels::EmbeddingBackward<T, G>& k,
                                              cudaStream_t stream, ExactOutlier* outlier = nullptr);

/// T and G: bf16, fp16 or fp32. Under --exact-sums each row of a sequence is rounded before it is
/// added.
template <class T, class G>
[[nodiscard]] Result<void> position_embedding_backward(
    const kernels::PositionEmbeddingBackward<T, G>& k, cudaStream_t stream,
    ExactOutlier* outlier = nullptr);

/// T: bf16, fp16 or fp32, const if only the loss is needed. One block processes a row at a time.
/// The part of a row that fits is kept in shared memory between the sum of its exponentials and its
/// gradient. The workspace holds a GridScratch.
template <class T>
[[nodiscard]] Result<void> cross_entropy(const kernels::CrossEntropy<T>& k, cudaStream_t stream);

/// T: bf16, fp16 or fp32.
template <class T>
[[nodiscard]] Result<void> softmax_parts(const kernels::SoftmaxParts<T>& k, cudaStream_t stream);

}  // namespace mfsdp::cuda
