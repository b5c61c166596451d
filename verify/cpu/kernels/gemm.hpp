// The GEMMs of a linear layer (core/plan/kernels/gemm.hpp). 16-bit operands are widened tile by
// tile into the plan's GEMM workspace, which holds at least gemm_workspace() elements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/plan/kernels/gemm.hpp"
#include "core/runtime/scalar.hpp"
#include "verify/cpu/kernels/product.hpp"
#include "verify/cpu/kernels/vector_clones.hpp"

namespace mfsdp::kernels {

/// Sides of a tile. A tile with its operands fits into the plan's 32 MiB.
inline constexpr std::int64_t kTileRows = 512;
inline constexpr std::int64_t kTileCols = 1024;
inline constexpr std::int64_t kTileInner = 4096;

/// Whether operands are used in place.
template <class T, class C>
inline constexpr bool gemm_in_place =
    std::conjunction_v<std::is_same<T, Real<T>>, std::is_same<C, T>>;

/// Elements of the largest tiles of a GEMM of these sizes.
[[nodiscard]] inline std::int64_t tile_workspace(std::int64_t rows, std::int64_t cols,
                                                 std::int64_t inner) {
  const std::int64_t r = std::min(rows, kTileRows);
  const std::int64_t c = std::min(cols, kTileCols);
  const std::int64_t i = std::min(inner, kTileInner);
  return r * i + i * c + r * c;
}

/// The places of these tiles in the workspace.
template <class T>
struct Tiles {
  Tiles(std::span<std::byte> workspace, std::int64_t rows, std::int64_t cols, std::int64_t inner)
      : a(reinterpret_cast<Real<T>*>(workspace.data())),
        b(a + std::min(rows, kTileRows) * std::min(inner, kTileInner)),
        c(b + std::min(inner, kTileInner) * std::min(cols, kTileCols)) {}

  Real<T>* a;
  Real<T>* b;
  Real<T>* c;
};

/// Widens the part of op(matrix) that begins at (row, col) and has these sides, kept in the order
/// in which it is stored.
template <class T>
Matrix<const Real<T>> widen_tile(const Matrix<const T>& matrix, std::int64_t row, std::int64_t col,
                                 std::int64_t rows, std::int64_t cols, Real<T>* to) {
  if (matrix.transposed) {
    std::swap(row, col);
    std::swap(rows, cols);
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    const T* from = matrix.data + (row + i) * matrix.row + col;
    for (std::int64_t j = 0; j < cols; ++j) to[i * cols + j] = widen(from[j]);
  }
  return {.data = to, .row = cols, .transposed = matrix.transposed};
}

template <class T, class C>
MFSDP_VECTOR_CLONES void gemm_tiled(const Gemm<T, C>& g) {
  const auto [a, b, c] = Tiles<T>(g.workspace, g.rows, g.cols, g.inner);
  for (std::int64_t row = 0; row < g.rows; row += kTileRows) {
    const std::int64_t rows = std::min(kTileRows, g.rows - row);
    for (std::int64_t col = 0; col < g.cols; col += kTileCols) {
      const std::int64_t cols = std::min(kTileCols, g.cols - col);
      for (std::int64_t k = 0; k < g.inner; k += kTileInner) {
        const std::int64_t inner = std::min(kTileInner, g.inner - k);
        multiply(widen_tile(g.a, row, k, rows, inner, a), widen_tile(g.b, k, col, inner, cols, b),
                 {.data = c, .row = cols}, rows, cols, inner, k > 0);
      }
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j) {
          C& out = g.row_of_c(row + i)[col + j];
          Real<T> sum = g.scale * c[i * cols + j];
          if (g.bias != nullptr) sum += widen(g.bias[col + j]);
          if (g.adds) sum += widen(out);
          out = narrow<C>(sum);
        }
    }
  }
}

/// Whether the GEMM of this call adds to its result in place, which needs a scale of 1.
template <class T, class C>
[[nodiscard]] bool is_in_place(const Gemm<T, C>& g) {
  return gemm_in_place<T, C> && g.scale == Real<T>(1);
}

/// Elements of Real<T> into which a GEMM widens its operands.
template <class T, class C>
[[nodiscard]] std::int64_t gemm_workspace(const Gemm<T, C>& g) {
  return is_in_place(g) ? 0 : tile_workspace(g.rows, g.cols, g.inner);
}

/// The bits of a row do not depend on other rows, as in multiply(). So Gemm::piece_rows, which is
/// for libraries without this guarantee, is ignored.
template <class T, class C>
void gemm(const Gemm<T, C>& g) {
  if constexpr (gemm_in_place<T, C>) {
    if (is_in_place(g)) {
      multiply(g.a, g.b, {.data = g.c, .row = g.pitch()}, g.rows, g.cols, g.inner, g.adds);
      if (g.bias == nullptr) return;
      for (std::int64_t i = 0; i < g.rows; ++i)
        for (std::int64_t j = 0; j < g.cols; ++j) g.row_of_c(i)[j] += g.bias[j];
      return;
    }
  }
  gemm_tiled(g);
}

}  // namespace mfsdp::kernels
