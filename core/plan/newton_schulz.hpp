// Orthogonalisation of a matrix by Newton-Schulz iterations, as in Muon: approximately U V^T of
// G = U S V^T.
//
//   X0 = G / |G|                                                    |.|: Frobenius' norm
//   X' = a X + (b A + c A^2) X   with   A = X X^T                   five times
//   the result is s X5
//
// with Keller Jordan's coefficients (kellerjordan.github.io/posts/muon), which map singular values
// from 0.0005 on to between 0.68 and 1.14 and do not converge. The scale s gives steps the size of
// AdamW's (Liu et al., arXiv 2502.16982, section 2.2), so that rates and decay can be those of
// AdamW. X is G or its transpose, with m rows, the shorter side, and n columns.
//
// The CPU computes these formulas, and GPUs do so where n is below 2 m. Otherwise GPUs use the Gram
// matrix R = X X^T, which has only m columns. A step is computed with polynomials of R
//
//   Z = a I + b R + c R^2       Q' = Z Q       R' = Z R Z
//
// and X = Q X once, after the last step. GEMMs of polynomials of R have symmetric results: the
// lower half is computed, in parts, and mirrored. Rounding errors of R disturb tiny singular values
// and grow by a^2 per step, as these do; docs/reference/optimizers.md has their size in fp16.
// `orthogonal_products` lists the GEMMs, from which costs follow.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

inline constexpr int kNewtonSchulzSteps = 5;

struct NewtonSchulzCoefficients {
  double a = 3.4445;
  double b = -4.7750;
  double c = 2.0315;
};

/// The factor of the orthogonalised matrix: 0.2 * root of its longer side.
[[nodiscard]] inline double orthogonal_scale(std::int64_t rows, std::int64_t cols) {
  return 0.2 * std::sqrt(static_cast<double>(rows > cols ? rows : cols));
}

/// Whether GPUs use the Gram matrix, for a matrix of these sides, m the smaller.
[[nodiscard]] constexpr bool goes_by_gram(std::int64_t m, std::int64_t n) { return n >= 2 * m; }

/// Whether symmetric results with m rows are divided into four parts, of which not all are
/// computed.
[[nodiscard]] constexpr bool is_cut_in_parts(std::int64_t rows) { return rows % 256 == 0; }

/// `times` GEMMs [rows, inner] [inner, cols] of one size.
struct OrthogonalProduct {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t inner = 0;
  std::int64_t times = 1;
};

/// All GEMMs for a matrix on a GPU. Equal parts of a symmetric result, which are computed as a
/// batch, count as one GEMM with all their rows and columns.
[[nodiscard]] std::vector<OrthogonalProduct> orthogonal_products(std::int64_t rows,
                                                                 std::int64_t cols);

/// Kernels that a GPU launches for a matrix: those GEMMs, a batch counting as one, and what lies
/// between them.
[[nodiscard]] std::int64_t newton_schulz_launches(std::int64_t rows, std::int64_t cols);

/// FLOPs of these GEMMs; 63 bits.
[[nodiscard]] std::int64_t newton_schulz_flops(std::int64_t rows, std::int64_t cols);

/// Bytes that a GPU reads and writes between its GEMMs: the matrix and its copies, and each [m, m]
/// result that is mirrored or summed.
[[nodiscard]] std::int64_t newton_schulz_bytes(std::int64_t rows, std::int64_t cols);

/// The layout of a GPU's workspace, in bytes from its start, each a multiple of 256. Elements have
/// `element` bytes; for directions in bf16 they are fp16.
struct NewtonSchulzWorkspace {
  std::int64_t first = 0;    ///< [m, n] X
  std::int64_t second = 0;   ///< [m, n] Q X
  std::int64_t squares = 0;  ///< five of [m, m], `square` bytes apart
  std::int64_t square = 0;
  std::int64_t sums = 0;      ///< kSumWorkspaceBytes
  std::int64_t products = 0;  ///< kOrthogonalGemmBytes, the GEMM library's workspace
  std::int64_t bytes = 0;     ///< of all

  static constexpr std::int64_t kSquares = 5;
};
inline constexpr std::int64_t kOrthogonalGemmBytes = std::int64_t{4} << 20;

[[nodiscard]] NewtonSchulzWorkspace newton_schulz_workspace_of(std::int64_t rows, std::int64_t cols,
                                                               std::int64_t element);

}  // namespace mfsdp
