// Sums at the end of a step on CUDA: gradients into main gradients, the loss, the norm of all
// gradients. Each function queues its launches on the stream and returns; none allocates. Equal
// calls give equal bits. --exact-sums requires `outlier`.
#pragma once

#include <cuda_runtime.h>

#include "core/base/error.hpp"
#include "core/plan/kernels/sums.hpp"
#include "gpu_backend/cuda/kernels/exact_outlier.hpp"

namespace mfsdp::cuda {

/// accumulate and cast, between bf16 or fp16 and fp32.
template <class In, class Out>
[[nodiscard]] Result<void> accumulate(const kernels::Accumulate<In, Out>& k, cudaStream_t stream,
                                      ExactOutlier* outlier = nullptr);

/// Parts in bf16, fp16 or fp32, added in fp32 in the order of ranks and rounded once.
template <class In, class Out>
[[nodiscard]] Result<void> sum_ranks(const kernels::SumRanks<In, Out>& k, cudaStream_t stream,
                                     ExactOutlier* outlier = nullptr);

/// One fill for each gap.
[[nodiscard]] Result<void> zero_padding(const kernels::ZeroPadding& k, cudaStream_t stream);

/// T: fp32. Sums in double.
[[nodiscard]] Result<void> loss_finish(const kernels::LossFinish<float>& k, cudaStream_t stream);

/// T: bf16 or fp32. Squares of a pack are added in fp32, packs in double, through the workspace,
/// which holds a GridScratch.
template <class T>
[[nodiscard]] Result<void> norm_partial(const kernels::NormPartial<T>& k, cudaStream_t stream);

/// An integer: it does not depend on the division of the values into shards.
[[nodiscard]] Result<void> exact_norm_partial(const kernels::ExactNormPartial& k,
                                              cudaStream_t stream, ExactOutlier* outlier);

/// Sums are in double, exact partials are integers.
[[nodiscard]] Result<void> norm_finish(const kernels::NormFinish& k, cudaStream_t stream,
                                       ExactOutlier* outlier = nullptr);

}  // namespace mfsdp::cuda
