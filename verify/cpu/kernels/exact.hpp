// Sums over tokens with --exact-sums (core/plan/exact_sums.hpp): piece by piece, each rounded to
// the grid before it is added.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/kernels/pieces.hpp"
#include "core/plan/op.hpp"
#include "verify/cpu/kernels/embedding.hpp"
#include "verify/cpu/kernels/gemm.hpp"
#include "verify/cpu/kernels/layer_norm.hpp"
#include "verify/cpu/kernels/norm.hpp"
#include "verify/cpu/kernels/rope.hpp"
#include "verify/cpu/kernels/vector_clones.hpp"

namespace mfsdp::kernels {

/// Rounds sums of pieces to steps of 2^exponent and adds them. Remembers the first outlier: a piece
/// or a sum that is larger than `limit` steps or NaN.
template <class R>
class GridSums {
 public:
  explicit GridSums(const GradientGrid& grid) : GridSums(grid.exponent, grid.limit) {}
  GridSums(std::int64_t exponent, std::int64_t limit)
      : exponent_(exponent),
        limit_(std::ldexp(static_cast<R>(limit), static_cast<int>(exponent))),
        shift_(std::ldexp(R(3), static_cast<int>(exponent) + std::numeric_limits<R>::digits - 2)) {}

  /// out = (out +) pieces, rounded. Values on the grid do not change.
  template <class G>
  void add(std::span<const R> pieces, bool adds, G* out) {
    std::int32_t outliers = 0;  // as wide as a float: the loop is vectorised
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      // About 3/2 * 2^(digits - 1) steps floats are whole steps, to which the addition rounds.
      const R rounded = (pieces[i] + shift_) - shift_;
      const R sum = adds ? widen(out[i]) + rounded : rounded;
      outliers |= std::fabs(pieces[i]) <= limit_ ? 0 : 1;
      outliers |= std::fabs(sum) <= limit_ ? 0 : 1;
      out[i] = narrow<G>(sum);
    }
    if (outliers == 0 || outlier_) return;
    for (std::size_t i = 0; i < pieces.size() && !outlier_; ++i)
      for (const R value : {pieces[i], R(widen(out[i]))})
        if (!(std::fabs(value) <= limit_)) outlier_ = value;
  }

  /// An error with the outlier in the gradient `role`, if there is one.
  [[nodiscard]] Result<void> result(const Kernel& kernel, std::string_view role) const {
    return result(fmt::format("kernel {}: operand {}", to_string(kernel.kind), role));
  }
  [[nodiscard]] Result<void> result(std::string_view where) const {
    if (!outlier_) return {};
    return fail(std::string(where),
                fmt::format("--exact-sums expects sums of at most {} in magnitude, so that none "
                            "over all ranks leaves 24 bits above 2^{}; got {}",
                            limit_, exponent_, *outlier_),
                Fault::environment);
  }

 private:
  std::int64_t exponent_;
  R limit_;
  R shift_;
  std::optional<R> outlier_;
};

/// Calls `compute` with sums on the grid of --exact-sums, or with null without it. Errors are
/// outliers in the gradient `role`.
template <class R, class Compute>
[[nodiscard]] Result<void> with_grid(const std::optional<GradientGrid>& grid, const Kernel& kernel,
                                     std::string_view role, const Compute& compute) {
  if (!grid) {
    compute(static_cast<GridSums<R>*>(nullptr));
    return {};
  }
  GridSums<R> sums(*grid);
  compute(&sums);
  return sums.result(kernel, role);
}

/// `g` of a weight gradient: its inner dim is tokens, cut into pieces. Its workspace holds at least
/// tile_workspace(rows, cols, piece) elements.
template <class T, class C>
MFSDP_VECTOR_CLONES void exact_weight_gradient(const Gemm<T, C>& g, GridSums<Real<T>>& sums) {
  const std::int64_t piece = g.pieces.rows;
  for (std::int64_t begin = 0; begin < g.inner; begin += piece)
    for (std::int64_t row = 0; row < g.rows; row += kTileRows)
      for (std::int64_t col = 0; col < g.cols; col += kTileCols) {
        const std::int64_t rows = std::min(kTileRows, g.rows - row);
        const std::int64_t cols = std::min(kTileCols, g.cols - col);
        const Tiles<T> tiles(g.workspace, rows, cols, piece);
        for (std::int64_t k = 0; k < piece; k += kTileInner) {
          const std::int64_t inner = std::min(kTileInner, piece - k);
          multiply(widen_tile(g.a, row, begin + k, rows, inner, tiles.a),
                   widen_tile(g.b, begin + k, col, inner, cols, tiles.b),
                   {.data = tiles.c, .row = cols}, rows, cols, inner, k > 0);
        }
        if (g.scale != Real<T>(1))
          for (std::int64_t i = 0; i < rows * cols; ++i) tiles.c[i] *= g.scale;
        // Rows that lie together are added together.
        const std::int64_t run = cols == g.cols ? rows * cols : cols;
        for (std::int64_t i = 0; i < rows * cols / run; ++i)
          sums.add({tiles.c + i * run, static_cast<std::size_t>(run)}, g.adds || begin > 0,
                   g.c + (row + i) * g.cols + col);
      }
}

/// out[cols] = (out +) sum over rows. `scratch`: room for one row.
template <class T, class G>
void exact_column_sums(const ColumnSums<T, G>& k, Real<T>* scratch, GridSums<Real<T>>& sums) {
  const std::int64_t piece = k.pieces.rows;
  std::vector<Real<T>> sum(static_cast<std::size_t>(k.cols));
  for (std::int64_t begin = 0; begin < k.rows; begin += piece) {
    column_sums(piece, k.cols, k.in + begin * k.cols, scratch, false, sum.data());
    sums.add(std::span<const Real<T>>(sum), k.adds || begin > 0, k.out);
  }
}

/// The weight's partials take the pieces in turn; the second stage does not depend on the rows.
template <class T>
void exact_rms_norm_backward(const RmsNormBackward<T>& k, GridSums<Real<T>>& sums) {
  const std::int64_t piece = k.pieces.rows;
  std::fill_n(k.partials, k.partial_rows * k.cols, Real<T>(0));
  std::vector<Real<T>> sum(static_cast<std::size_t>(k.cols));
  for (std::int64_t begin = 0; begin < k.rows; begin += piece) {
    RmsNormBackward<T> part = k;
    part.rows = piece;
    part.partial_rows = 1;
    part.d_normed += begin * k.cols;
    part.input += begin * k.cols;
    part.rstd += begin;
    part.d_residual += begin * k.cols;
    if (part.normed != nullptr) part.normed += begin * k.cols;
    part.partials = sum.data();
    rms_norm_backward(part);
    sums.add(std::span<const Real<T>>(sum), true,
             k.partials + begin / piece % k.partial_rows * k.cols);
  }
}

/// Likewise, with those of the bias.
template <class T>
void exact_layer_norm_backward(const LayerNormBackward<T>& k, GridSums<Real<T>>& sums) {
  const std::int64_t piece = k.pieces.rows;
  std::fill_n(k.partials, 2 * k.partial_rows * k.cols, Real<T>(0));
  std::vector<Real<T>> sum(static_cast<std::size_t>(2 * k.cols));
  for (std::int64_t begin = 0; begin < k.rows; begin += piece) {
    LayerNormBackward<T> part = k;
    part.rows = piece;
    part.partial_rows = 1;
    part.d_normed += begin * k.cols;
    part.input += begin * k.cols;
    part.mean += begin;
    part.rstd += begin;
    part.d_residual += begin * k.cols;
    if (part.normed != nullptr) part.normed += begin * k.cols;
    part.partials = sum.data();
    layer_norm_backward(part);
    Real<T>* const weights = k.partials + begin / piece % k.partial_rows * k.cols;
    const std::span<const Real<T>> both(sum);
    const auto half = static_cast<std::size_t>(k.cols);
    sums.add(both.first(half), true, weights);
    sums.add(both.last(half), true, weights + k.partial_rows * k.cols);
  }
}

template <class T, class Table>
void exact_qk_row_norm_rope_backward(const QkRowNormRopeBackward<T, Table>& k,
                                     GridSums<Real<T>>& sums) {
  const RopeShape& s = k.shape;
  const std::int64_t piece = k.pieces.rows;
  const std::int64_t queries = k.query_heads * s.head_dim;
  const std::int64_t keys = s.heads * s.head_dim - queries;
  std::fill_n(k.partials, k.partial_rows * (queries + keys), Real<T>(0));
  std::vector<Real<T>> sum(static_cast<std::size_t>(queries + keys));
  for (std::int64_t begin = 0; begin < s.tokens; begin += piece) {
    QkRowNormRopeBackward<T, Table> part = k;
    part.shape = s.piece(begin, piece);
    part.partial_rows = 1;
    part.gradient.data += begin * k.gradient.row;
    part.in.data += begin * k.in.row;
    part.rstd += begin * 2;
    part.partials = sum.data();
    qk_row_norm_rope_backward(part);
    const std::int64_t row = begin / piece % k.partial_rows;
    const std::span<const Real<T>> both(sum);
    sums.add(both.first(static_cast<std::size_t>(queries)), true, k.partials + row * queries);
    sums.add(both.last(static_cast<std::size_t>(keys)), true,
             k.partials + k.partial_rows * queries + row * keys);
  }
}

/// Row by row: the order does not change the result.
template <class T, class G>
void exact_position_embedding_backward(const PositionEmbeddingBackward<T, G>& k,
                                       GridSums<Real<T>>& sums) {
  if (!k.adds) std::fill_n(k.gradient, k.positions * k.cols, narrow<G>(0));
  std::vector<Real<T>> row(static_cast<std::size_t>(k.cols));
  for (std::int64_t i = 0; i < k.rows; ++i) {
    for (std::int64_t j = 0; j < k.cols; ++j)
      row[static_cast<std::size_t>(j)] = widen(k.d_output[i * k.cols + j]);
    sums.add(std::span<const Real<T>>(row), true, k.gradient + k.position(i) * k.cols);
  }
}

template <class T, class Table>
void exact_qk_norm_rope_backward(const QkNormRopeBackward<T, Table>& k, GridSums<Real<T>>& sums) {
  const RopeShape& s = k.shape;
  const std::int64_t piece = k.pieces.rows;
  std::fill_n(k.partials, 2 * k.partial_rows * s.head_dim, Real<T>(0));
  std::vector<Real<T>> sum(static_cast<std::size_t>(2 * s.head_dim));
  for (std::int64_t begin = 0; begin < s.tokens; begin += piece) {
    QkNormRopeBackward<T, Table> part = k;
    part.shape = s.piece(begin, piece);
    part.partial_rows = 1;
    part.gradient.data += begin * k.gradient.row;
    part.in.data += begin * k.in.row;
    part.rstd += begin * s.heads;
    part.partials = sum.data();
    qk_norm_rope_backward(part);
    Real<T>* const queries = k.partials + begin / piece % k.partial_rows * s.head_dim;
    const std::span<const Real<T>> both(sum);
    const auto half = static_cast<std::size_t>(s.head_dim);
    sums.add(both.first(half), true, queries);
    sums.add(both.last(half), true, queries + k.partial_rows * s.head_dim);
  }
}

template <class T, class G>
void exact_embedding_backward(const EmbeddingBackward<T, G>& k, GridSums<Real<T>>& sums) {
  if (!k.adds) std::fill_n(k.gradient, k.vocab * k.cols, narrow<G>(0));
  const auto piece = static_cast<std::size_t>(k.pieces.rows);
  for (std::size_t begin = 0; begin < k.tokens.size(); begin += piece)
    for_each_token_sum(k.tokens.subspan(begin, piece), k.cols, k.scale,
                       k.d_output + static_cast<std::int64_t>(begin) * k.cols, k.order.first(piece),
                       [&](std::int32_t token, std::span<const Real<T>> sum) {
                         const std::int64_t place = token - k.vocab_begin;
                         if (place < 0 || place >= k.vocab) return;  // another rank has it
                         sums.add(sum, true, k.gradient + place * k.cols);
                       });
}

}  // namespace mfsdp::kernels
