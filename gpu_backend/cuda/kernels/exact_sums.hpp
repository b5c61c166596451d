// Sums under --exact-sums (core/plan/exact_sums.hpp) that several kernels are made of. What is
// queued goes to the stream; what is not exact is left in `outlier`.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

#include "core/base/error.hpp"
#include "core/plan/kernels/norm.hpp"
#include "core/plan/kernels/sums.hpp"
#include "gpu_backend/cuda/kernels/exact_outlier.hpp"

namespace mfsdp::cuda {

/// out = (out +) in, each element rounded to the grid. k.grid must be there.
[[nodiscard]] Result<void> add_on_grid(const kernels::Accumulate<float, float>& k,
                                       KernelKind kernel, ExactOutlier* outlier,
                                       cudaStream_t stream);

/// out = (out +) the sums of the columns over each piece of rows, each in row order and rounded to
/// the grid. k.pieces.grid must be there; k.partials are not used. T: bf16, fp16 or fp32.
template <class T>
[[nodiscard]] Result<void> sum_on_grid(const kernels::ColumnSums<T, float>& k, KernelKind kernel,
                                       ExactOutlier* outlier, cudaStream_t stream);

/// --exact-sums needs a place for what is not exact.
[[nodiscard]] Result<void> check_outlier(KernelKind kernel, const ExactOutlier* outlier);

/// For kernels whose rows of partials hold the sum of all pieces and the parts of one.
[[nodiscard]] Result<void> check_exact_rows(std::string_view kernel, std::int64_t partial_rows);

/// `count` zeros.
[[nodiscard]] Result<void> zero(float* to, std::int64_t count, std::string_view kernel,
                                cudaStream_t stream);

/// For gradients that are no fp32, which core/plan/exact_sums.hpp asks for.
[[nodiscard]] Result<void> expected_fp32(KernelKind kernel);

}  // namespace mfsdp::cuda
