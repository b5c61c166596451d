// Requirements of GPUs and cuBLASLt for GEMMs with FP8 operands.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "core/base/error.hpp"
#include "core/plan/kernels/fp8.hpp"
#include "core/plan/kernels/fp8_blocks.hpp"
#include "core/runtime/scalar.hpp"
#include "gpu_backend/cuda/gemm.hpp"

namespace mfsdp::cuda {

/// The shape, with c[rows, cols] = a[rows, inner] * b[cols, inner]^T: sizes, types and layouts.
[[nodiscard]] Result<void> check_fp8_shape(const GemmShape& shape);

/// Scales are there, and begin on multiples of 16 bytes: cuBLASLt refuses others.
[[nodiscard]] Result<void> check_fp8_scales(const GemmShape& shape, const GemmMemory& memory);

/// The current GPU multiplies FP8 numbers. The error names it, as Fault::environment.
[[nodiscard]] Result<void> check_fp8_device();

/// It also multiplies with scales of blocks of 128: Hopper's, by cuBLASLt 12.9 or later.
[[nodiscard]] Result<void> check_fp8_block_device();

/// Gives the number of bytes, a power of two, on multiples of which all operands of a GEMM begin.
template <class Gemm>
[[nodiscard]] auto alignment_of(const Gemm& g) {
  return common_alignment(std::array{reinterpret_cast<std::uintptr_t>(g.a.data),
                                     reinterpret_cast<std::uintptr_t>(g.b.data),
                                     reinterpret_cast<std::uintptr_t>(g.c)});
}

template <class C>
[[nodiscard]] GemmShape fp8_shape_of(const kernels::Fp8Gemm<C>& g) {
  return {.rows = g.rows,
          .cols = g.cols,
          .inner = g.inner,
          .a_row = g.inner,
          .b_row = g.inner,
          .b_transposed = true,
          .bias = g.bias != nullptr,
          .adds = g.adds,
          .operands = g.a.dtype,
          .result = dtype_of<C>,
          .alignment = alignment_of(g),
          .operands_b = g.a.dtype == g.b.dtype ? std::nullopt : std::optional(g.b.dtype),
          .fast = g.fast};
}

template <class C>
[[nodiscard]] GemmMemory fp8_memory_of(const kernels::Fp8Gemm<C>& g) {
  return {.a = g.a.data,
          .b = g.b.data,
          .bias = g.bias,
          .c = g.c,
          .scale = g.scale,
          .workspace = g.workspace,
          .a_scale = g.a_scale,
          .b_scale = g.b_scale};
}

/// With scales of blocks of 128 values.
template <class C>
[[nodiscard]] GemmShape block_shape_of(const kernels::BlockGemm<C>& g) {
  const std::int64_t inner = g.blocks * g.block;
  return {.rows = g.rows,
          .cols = g.cols,
          .inner = inner,
          .a_row = inner,
          .b_row = inner,
          .b_transposed = true,
          .adds = g.adds,
          .operands = g.a.dtype,
          .result = dtype_of<C>,
          .alignment = alignment_of(g),
          .a_scale_rows = 1,
          .b_scale_rows = g.cols / g.b_lines};
}

/// The scales of b are those of its rows, or what lay_out_scales() makes of them.
template <class C>
[[nodiscard]] GemmMemory block_memory_of(const kernels::BlockGemm<C>& g) {
  return {.a = g.a.data,
          .b = g.b.data,
          .c = g.c,
          .scale = g.scale,
          .workspace = g.workspace,
          .a_scale = reinterpret_cast<const float*>(g.a_scale.data),
          .b_scale = reinterpret_cast<const float*>(g.b_scale.data)};
}

}  // namespace mfsdp::cuda
