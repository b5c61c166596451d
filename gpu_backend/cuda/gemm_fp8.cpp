#include "gpu_backend/cuda/gemm_fp8.hpp"

#include <fmt/format.h>

#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/kernels/fp8_blocks.hpp"

namespace mfsdp::cuda {
namespace {

constexpr int kLeastCapability = 89;  ///< 8.9: Ada; 9.0: Hopper
constexpr std::uintptr_t kScaleAlignment = 16;

constexpr int kHopper = 90;
constexpr std::size_t kVersionWithBlocks = 120900;

Result<cudaDeviceProp> properties_of_device() {
  int device = 0;
  MFSDP_TRY(check(cudaGetDevice(&device), "cudaGetDevice"));
  cudaDeviceProp properties{};
  MFSDP_TRY(check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
  return properties;
}

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
  const bool of_blocks = shape.a_scale_rows != 0;
  if (of_blocks != (shape.b_scale_rows != 0))
    return fail(where, "expected scales of blocks for both operands, or for neither");
  if (of_blocks && shape.fast) return fail(where, "expected split sums with scales of blocks");
  if (of_blocks && shape.a_scale_rows != 1 && shape.b_scale_rows != 1)
    return fail(where, "expected scales of 1 x 128 for one of the operands");
  for (const std::int64_t size : {shape.rows, shape.cols, shape.inner})
    if (of_blocks && size % kScaleBlock != 0)
      return fail(where,
                  fmt::format("expected dimensions in multiples of {} with scales of blocks, "
                              "got {}",
                              kScaleBlock, size));
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
  MFSDP_LET(properties, properties_of_device());
  if (properties.major * 10 + properties.minor >= kLeastCapability) return {};
  return fail("fp8",
              fmt::format("expected a GPU of compute capability 8.9 or later, got {} of {}.{}",
                          properties.name, properties.major, properties.minor),
              Fault::environment);
}

Result<void> check_fp8_block_device() {
  MFSDP_LET(properties, properties_of_device());
  if (properties.major * 10 + properties.minor != kHopper)
    return fail("fp8",
                fmt::format("expected a GPU of compute capability 9.0 for scales of blocks of 128, "
                            "got {} of {}.{}",
                            properties.name, properties.major, properties.minor),
                Fault::environment);
  MFSDP_TRY(load_cublas_lt());
  if (const std::size_t version = cublas_lt().version(); version < kVersionWithBlocks)
    return fail("fp8",
                fmt::format("expected cuBLASLt {} or later for scales of blocks of 128, got {}",
                            kVersionWithBlocks, version),
                Fault::environment);
  return {};
}

}  // namespace mfsdp::cuda
