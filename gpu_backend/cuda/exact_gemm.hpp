// Weight gradients under --exact-sums (core/plan/exact_sums.hpp): one GEMM for each piece of the
// tokens, whose result is rounded to the grid before it is added. GEMMs are computed in tiles
// through one half of the plan's workspace; cuBLASLt has the other half.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "core/base/error.hpp"
#include "core/plan/kernels/gemm.hpp"
#include "gpu_backend/cuda/gemm.hpp"
#include "gpu_backend/cuda/kernels/exact_sums.hpp"

namespace mfsdp::cuda {

/// Rows of the gradient in one GEMM, except the last ones. They depend only on the sizes, so that
/// every rank's GEMMs of a piece are the same.
template <class T, class C>
[[nodiscard]] Result<std::int64_t> exact_tile_rows(const kernels::Gemm<T, C>& g) {
  constexpr std::int64_t whole = 128;  // rows of a tile if there are more; keeps the alignment
  const auto half = static_cast<std::int64_t>(g.workspace.size() / 2);
  const std::int64_t row_bytes = std::max<std::int64_t>(g.cols, 1) * std::int64_t{sizeof(float)};
  const std::int64_t rows = half / row_bytes;
  if (rows >= g.rows) return g.rows;
  if (rows >= whole) return rows / whole * whole;
  return fail("kernel gemm: operand workspace",
              fmt::format("--exact-sums expects at least {} bytes, got {}", 2 * whole * row_bytes,
                          g.workspace.size()));
}

/// The GEMM of a piece and `rows` rows of the gradient.
template <class T, class C>
[[nodiscard]] GemmShape exact_tile_shape(const kernels::Gemm<T, C>& g, std::int64_t rows) {
  const auto bytes = [](std::int64_t elements) {
    return static_cast<std::uintptr_t>(elements) * sizeof(T);
  };
  const std::int64_t tokens = g.pieces.rows;
  return {
      .rows = rows,
      .cols = g.cols,
      .inner = tokens,
      .a_row = g.a.row,
      .b_row = g.b.row,
      .a_transposed = true,
      .operands = dtype_of<T>,
      .result = DType::fp32,
      .alignment = common_alignment(std::array{reinterpret_cast<std::uintptr_t>(g.a.data),
                                               reinterpret_cast<std::uintptr_t>(g.b.data),
                                               bytes(tokens * g.a.row), bytes(tokens * g.b.row)})};
}

/// The memory of that GEMM, for the piece that begins at `token`, from row `row` on.
template <class T, class C>
[[nodiscard]] GemmMemory exact_tile_memory(const kernels::Gemm<T, C>& g, std::int64_t token,
                                           std::int64_t row) {
  constexpr std::size_t unit = 256;  // alignment of a workspace
  const std::size_t half = g.workspace.size() / 2 / unit * unit;
  return {.a = g.a.data + token * g.a.row + row,
          .b = g.b.data + token * g.b.row,
          .c = g.workspace.data() + half,
          .scale = g.scale,
          .workspace = g.workspace.first(half)};
}

/// Calls use(shape, row) for every tile.
template <class T, class C, class Use>
[[nodiscard]] Result<void> for_each_exact_tile(const kernels::Gemm<T, C>& g, const Use& use) {
  MFSDP_LET(tile, exact_tile_rows(g));
  for (std::int64_t row = 0; row < g.rows; row += tile)
    MFSDP_TRY(use(exact_tile_shape(g, std::min(tile, g.rows - row)), row));
  return {};
}

/// See GemmPlanner::prepare. Requires g.pieces.grid.
template <class T, class C>
[[nodiscard]] Result<void> prepare_exact(GemmPlanner& planner, const kernels::Gemm<T, C>& g,
                                         cudaStream_t stream) {
  return for_each_exact_tile(g, [&](const GemmShape& shape, std::int64_t row) {
    return planner.prepare(shape, exact_tile_memory(g, 0, row), stream);
  });
}

/// Queues a call that was prepared.
template <class T, class C>
[[nodiscard]] Result<void> run_exact(const GemmPlanner& planner, const kernels::Gemm<T, C>& g,
                                     cudaStream_t stream, ExactOutlier* outlier) {
  if constexpr (!std::is_same_v<C, float>) {
    return expected_fp32(KernelKind::gemm);
  } else {
    for (std::int64_t token = 0; token < g.inner; token += g.pieces.rows) {
      const auto add_tile = [&](const GemmShape& shape, std::int64_t row) -> Result<void> {
        const GemmMemory memory = exact_tile_memory(g, token, row);
        MFSDP_TRY(planner.run(shape, memory, stream));
        return add_on_grid({.count = shape.rows * shape.cols,
                            .in = static_cast<const float*>(memory.c),
                            .adds = g.adds || token > 0,
                            .out = g.c + row * g.cols,
                            .grid = g.pieces.grid},
                           KernelKind::gemm, outlier, stream);
      };
      MFSDP_TRY(for_each_exact_tile(g, add_tile));
    }
    return {};
  }
}

}  // namespace mfsdp::cuda
