// Sums under --exact-sums (core/plan/exact_sums.hpp) that several kernels use. Launches are queued
// on the stream, and values that are not exact are reported in `outlier`.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string_view>

#include "core/base/error.hpp"
#include "core/plan/kernels/norm.hpp"
#include "core/plan/kernels/sums.hpp"
#include "gpu_backend/cuda/kernels/exact_outlier.hpp"

namespace mfsdp::cuda {

/// out = (out +) in, each element rounded to the grid. Requires k.grid.
[[nodiscard]] Result<void> add_on_grid(const kernels::Accumulate<float, float>& k,
                                       KernelKind kernel, ExactOutlier* outlier,
                                       cudaStream_t stream);

/// out = (out +) the sums of the columns over each piece of rows, each in row order and rounded to
/// the grid. Requires k.pieces.grid; k.partials is not used. T: bf16, fp16 or fp32.
template <class T>
[[nodiscard]] Result<void> sum_on_grid(const kernels::ColumnSums<T, float>& k, KernelKind kernel,
                                       ExactOutlier* outlier, cudaStream_t stream);

/// --exact-sums requires an `outlier`.
[[nodiscard]] Result<void> check_outlier(KernelKind kernel, const ExactOutlier* outlier);

/// For kernels whose rows of partials hold the sum of all pieces and the parts of one.
[[nodiscard]] Result<void> check_exact_rows(std::string_view kernel, std::int64_t partial_rows);

/// Writes `count` zeros.
[[nodiscard]] Result<void> zero(float* to, std::int64_t count, std::string_view kernel,
                                cudaStream_t stream);

/// The error for gradients that are not fp32, which core/plan/exact_sums.hpp requires.
[[nodiscard]] Result<void> expected_fp32(KernelKind kernel);

}  // namespace mfsdp::cuda
