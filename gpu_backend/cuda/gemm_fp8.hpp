// Requirements of GPUs and cuBLASLt for GEMMs with FP8 operands.
#pragma once

#include "core/base/error.hpp"
#include "gpu_backend/cuda/gemm.hpp"

namespace mfsdp::cuda {

/// The shape, with c[rows, cols] = a[rows, inner] * b[cols, inner]^T: sizes, types and layouts.
[[nodiscard]] Result<void> check_fp8_shape(const GemmShape& shape);

/// The current GPU multiplies FP8 numbers. The error names it, as Fault::environment.
[[nodiscard]] Result<void> check_fp8_device();

}  // namespace mfsdp::cuda
