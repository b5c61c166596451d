#include "gpu_backend/cuda/gemm_fp8.hpp"

#include <fmt/format.h>

#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {
namespace {

constexpr int kLeastCapability = 89;  ///< 8.9: Ada; 9.0: Hopper
constexpr std::uintptr_t kScaleAlignment = 16;

}  // namespace

Result<void> check_fp8_shape(const GemmShape& shape) {
  const std::string where = fmt::format("gemm {}", to_string(shape));
  const DType b = shape.operands_b.value_or(shape.operands);
  if (!is_fp8(shape.operands) || !is_fp8(b))
    return fail(where, "expected both operands in FP8, or neither");
  if (shape.operands == DType::fp8_e5m2 && b == DType::fp8_e5m2)
    return fail(where, "expected at most one operand in fp8_e5m2");
  // Hopper's tensor cores read FP8 operands along the terms of a sum.
  if (shape.a_transposed || !shape.b_transposed)
    return fail(
        where,
        "expected FP8 operands whose rows are terms of a sum: a[rows, inner], b[cols, inner]");
  for (const std::int64_t size : {shape.rows, shape.cols, shape.inner, shape.a_row, shape.b_row})
    if (size % kernels::kFp8Grain != 0)
      return fail(where, fmt::format("expected dimensions in multiples of {}, got {}",
                                     kernels::kFp8Grain, size));
  if (shape.bias && shape.result == DType::fp32)
    return fail(where, "expected a result in 16 bits beside a bias");
  if (shape.alignment < kernels::kFp8Grain)
    return fail(where,
                fmt::format("expected operands on multiples of {} bytes", kernels::kFp8Grain));
  return {};
}

Result<void> check_fp8_scales(const GemmShape& shape, const GemmMemory& memory) {
  for (const float* scale : {memory.a_scale, memory.b_scale})
    if (scale == nullptr || reinterpret_cast<std::uintptr_t>(scale) % kScaleAlignment != 0)
      return fail(fmt::format("gemm {}", to_string(shape)),
                  fmt::format("expected scales on multiples of {} bytes", kScaleAlignment));
  return {};
}

Result<void> check_fp8_device() {
  int device = 0;
  MFSDP_TRY(check(cudaGetDevice(&device), "cudaGetDevice"));
  cudaDeviceProp properties{};
  MFSDP_TRY(check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
  if (properties.major * 10 + properties.minor >= kLeastCapability) return {};
  return fail("fp8",
              fmt::format("expected a GPU of compute capability 8.9 or later, got {} of {}.{}",
                          properties.name, properties.major, properties.minor),
              Fault::environment);
}

}  // namespace mfsdp::cuda
