// Orthogonalisation of a matrix by Newton and Schulz, as Muon has it: U V^T of G = U S V^T, about.
//
//   X0 = G / |G|                                                    |.|: Frobenius' norm
//   X' = a X + (b A + c A^2) X   with   A = X X^T                   five times
//   the result is s X5
//
// with Keller Jordan's coefficients (kellerjordan.github.io/posts/muon), which bring singular
// values from 0.0005 on between 0.68 and 1.14 and converge to no value, and with the scale s that
// gives steps the size of AdamW's (Liu et al., arXiv 2502.16982, section 2.2): so rates and decay
// may be those of AdamW. G may be the transpose; X has its shorter side in front, m, and n columns.
//
// The CPU computes as is written here. So do GPUs where n is below 2 m. Elsewhere they compute the
// same by the Gram matrix R = X X^T, which has but m columns: a step by polynomials of R
//
//   Z = a I + b R + c R^2       Q' = Z Q       R' = Z R Z
//
// and X = Q X once, after the last step. Products of polynomials of R are symmetric: of each the
// lower half is computed, in parts, and mirrored. Rounding of R makes tiny singular values
// uncertain, and grows by a^2 a step as they do: docs/reference/optimizers.md says how far, in
// fp16. `orthogonal_products` lists what it takes; what it costs follows from that list.
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

/// What the orthogonalised matrix is multiplied by: 0.2 * root of its longer side.
[[nodiscard]] inline double orthogonal_scale(std::int64_t rows, std::int64_t cols) {
  return 0.2 * std::sqrt(static_cast<double>(rows > cols ? rows : cols));
}

/// Whether GPUs go by the Gram matrix, of a matrix of these sides, m the smaller.
[[nodiscard]] constexpr bool goes_by_gram(std::int64_t m, std::int64_t n) { return n >= 2 * m; }

/// Whether of symmetric results of that many rows only parts are computed: they are cut into four.
[[nodiscard]] constexpr bool is_cut_in_parts(std::int64_t rows) { return rows % 256 == 0; }

/// `times` products [rows, inner] [inner, cols] of one size.
struct OrthogonalProduct {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t inner = 0;
  std::int64_t times = 1;
};

/// All products for a matrix on a GPU. Equal parts of a symmetric result, which are computed as a
/// batch, count as one product of their rows and columns together.
[[nodiscard]] std::vector<OrthogonalProduct> orthogonal_products(std::int64_t rows,
                                                                 std::int64_t cols);

/// Multiplications and additions of these; 63 bits.
[[nodiscard]] std::int64_t newton_schulz_flops(std::int64_t rows, std::int64_t cols);

/// Bytes that a GPU reads and writes between its products: the matrix and its copies, and each
/// [m, m] result that is mirrored or added up.
[[nodiscard]] std::int64_t newton_schulz_bytes(std::int64_t rows, std::int64_t cols);

/// Where a GPU keeps what in its workspace, bytes from its start, each a multiple of 256. Elements
/// have `element` bytes: fp16's for directions in bf16.
struct NewtonSchulzWorkspace {
  std::int64_t first = 0;    ///< [m, n] X
  std::int64_t second = 0;   ///< [m, n] Q X
  std::int64_t squares = 0;  ///< five of [m, m], `square` bytes apart
  std::int64_t square = 0;
  std::int64_t sums = 0;      ///< kSumWorkspaceBytes
  std::int64_t products = 0;  ///< kOrthogonalGemmBytes, for the library of products
  std::int64_t bytes = 0;     ///< of all

  static constexpr std::int64_t kSquares = 5;
};
inline constexpr std::int64_t kOrthogonalGemmBytes = std::int64_t{4} << 20;

[[nodiscard]] NewtonSchulzWorkspace newton_schulz_workspace_of(std::int64_t rows, std::int64_t cols,
                                                               std::int64_t element);

}  // namespace mfsdp
