// Converts a plan's GEMMs to cuBLASLt's.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/base/error.hpp"
#include "core/plan/kernels/gemm.hpp"
#include "core/runtime/scalar.hpp"
#include "gpu_backend/cuda/exact_gemm.hpp"
#include "gpu_backend/cuda/gemm.hpp"
#include "gpu_backend/cuda/gemm_parts.hpp"

namespace mfsdp::cuda {

/// Rows of one GEMM: all, or those of one piece under --exact-sums.
template <class T, class C>
[[nodiscard]] std::int64_t rows_of_product(const kernels::Gemm<T, C>& g) {
  return g.piece_rows == 0 ? g.rows : g.piece_rows;
}

/// The GEMM of a call, or of one of its pieces.
template <class T, class C>
[[nodiscard]] GemmShape shape_of(const kernels::Gemm<T, C>& g) {
  const auto bytes = [](std::int64_t elements, std::size_t size) {
    return static_cast<std::uintptr_t>(elements) * size;
  };
  const std::int64_t rows = rows_of_product(g);
  const bool cut = rows != g.rows;
  return {
      .rows = rows,
      .cols = g.cols,
      .inner = g.inner,
      .a_row = g.a.row,
      .b_row = g.b.row,
      .c_row = g.c_row,
      .a_transposed = g.a.transposed,
      .b_transposed = g.b.transposed,
      .bias = g.bias != nullptr,
      .adds = g.adds,
      .operands = dtype_of<T>,
      .result = dtype_of<C>,
      .alignment = common_alignment(std::array{
          reinterpret_cast<std::uintptr_t>(g.a.data), reinterpret_cast<std::uintptr_t>(g.b.data),
          reinterpret_cast<std::uintptr_t>(g.c), cut ? bytes(rows * g.a.row, sizeof(T)) : 0,
          cut ? bytes(rows * g.pitch(), sizeof(C)) : 0})};
}

/// The memory of the GEMM that begins at a row. The row is 0 unless `a` is not transposed.
template <class T, class C>
[[nodiscard]] GemmMemory memory_of(const kernels::Gemm<T, C>& g, std::int64_t row = 0) {
  return {.a = g.a.data + row * g.a.row,
          .b = g.b.data,
          .bias = g.bias,
          .c = g.row_of_c(row),
          .scale = g.scale,
          .workspace = g.workspace};
}

/// See GemmPlanner::prepare.
template <class T, class C>
[[nodiscard]] Result<void> prepare(GemmPlanner& planner, const kernels::Gemm<T, C>& g,
                                   cudaStream_t stream) {
  if (g.pieces.grid) return prepare_exact(planner, g, stream);
  for (const GemmPart& part : aligned_parts({shape_of(g), memory_of(g)}))
    MFSDP_TRY(planner.prepare(part.shape, part.memory, stream));
  return {};
}

/// Queues a prepared call. --exact-sums requires `outlier`.
template <class T, class C>
[[nodiscard]] Result<void> run(const GemmPlanner& planner, const kernels::Gemm<T, C>& g,
                               cudaStream_t stream, ExactOutlier* outlier = nullptr) {
  if (g.pieces.grid) return run_exact(planner, g, stream, outlier);
  const GemmShape shape = shape_of(g);
  for (std::int64_t row = 0; row < g.rows; row += shape.rows)
    for (const GemmPart& part : aligned_parts({shape, memory_of(g, row)}))
      MFSDP_TRY(planner.run(part.shape, part.memory, stream));
  return {};
}

}  // namespace mfsdp::cuda
