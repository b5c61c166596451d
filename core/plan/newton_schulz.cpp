#include "core/plan/newton_schulz.hpp"

#include <algorithm>

#include "core/base/quantity.hpp"
#include "core/plan/kernel_spec.hpp"

namespace mfsdp {
namespace {

/// How often a GPU computes each kind of GEMM.
struct Counts {
  std::int64_t squares = kNewtonSchulzSteps;  ///< R^2
  std::int64_t others = 0;                    ///< Z Q, Z R and (Z R) Z, fewer in the last step
  std::int64_t of_x = kNewtonSchulzSteps;     ///< R of X, and X of Q and X
};
Counts counts_of(std::int64_t m, std::int64_t n) {
  if (!goes_by_gram(m, n)) return {};
  return {.others = std::int64_t{3} * (kNewtonSchulzSteps - 1), .of_x = 1};
}

void add_symmetric(std::vector<OrthogonalProduct>& all, std::int64_t m, std::int64_t inner,
                   std::int64_t times) {
  if (!is_cut_in_parts(m)) {
    all.push_back({.rows = m, .cols = m, .inner = inner, .times = times});
    return;
  }
  all.push_back(
      {.rows = m / 2, .cols = m / 2, .inner = inner, .times = times});  // below the middle
  all.push_back({.rows = m / 2, .cols = m / 4, .inner = inner, .times = times});  // 2 of m/4, m/4
  all.push_back(
      {.rows = m / 2, .cols = m / 2, .inner = inner, .times = times});  // 4 on the diagonal
}

}  // namespace

std::vector<OrthogonalProduct> orthogonal_products(std::int64_t rows, std::int64_t cols) {
  const std::int64_t m = std::min(rows, cols);
  const std::int64_t n = std::max(rows, cols);
  const Counts counts = counts_of(m, n);
  std::vector<OrthogonalProduct> all;
  add_symmetric(all, m, m, counts.squares + counts.others);
  add_symmetric(all, m, n, counts.of_x);
  all.push_back({.rows = m, .cols = n, .inner = m, .times = counts.of_x});
  return all;
}

std::int64_t newton_schulz_launches(std::int64_t rows, std::int64_t cols) {
  const std::int64_t m = std::min(rows, cols);
  const Counts counts = counts_of(m, std::max(rows, cols));
  // Each symmetric result is mirrored, or summed with the Gram matrix to Z.
  const std::int64_t of_symmetric = (is_cut_in_parts(m) ? 3 : 1) + 1;
  constexpr std::int64_t kEnds = 4;  // the norm and its scratch, one copy, the result
  return (counts.squares + counts.others + counts.of_x) * of_symmetric + counts.of_x + kEnds;
}

std::int64_t newton_schulz_flops(std::int64_t rows, std::int64_t cols) {
  std::int64_t flops = 0;
  for (const OrthogonalProduct& p : orthogonal_products(rows, cols))
    flops = checked_add(flops, product_of(2, p.times, p.rows, p.cols, p.inner));
  return flops;
}

std::int64_t newton_schulz_bytes(std::int64_t rows, std::int64_t cols) {
  constexpr std::int64_t kElement = 2;
  const std::int64_t m = std::min(rows, cols);
  // The norm reads the matrix, one copy is made of it, and another copy writes the result.
  constexpr std::int64_t kOfMatrix = 1 + 2 + 2;
  // To mirror, half is read and half is written. Z reads halves of R and its square, and is
  // written.
  const Counts counts = counts_of(m, std::max(rows, cols));
  const std::int64_t halves = 2 * (counts.others + counts.of_x) + 4 * counts.squares;
  return checked_add(product_of(kOfMatrix, kElement, rows, cols),
                     product_of(halves, kElement, m, m) / 2);
}

NewtonSchulzWorkspace newton_schulz_workspace_of(std::int64_t rows, std::int64_t cols,
                                                 std::int64_t element) {
  const std::int64_t m = std::min(rows, cols);
  const auto aligned = [](std::int64_t bytes) { return round_up(bytes, 256); };
  NewtonSchulzWorkspace space;
  const std::int64_t matrix = aligned(product_of(rows, cols, element));
  space.square = aligned(product_of(m, m, element));
  space.second = matrix;
  space.squares = checked_add(matrix, matrix);
  space.sums =
      checked_add(space.squares, checked_mul(NewtonSchulzWorkspace::kSquares, space.square));
  space.products = checked_add(space.sums, aligned(kSumWorkspaceBytes));
  space.bytes = checked_add(space.products, kOrthogonalGemmBytes);
  return space;
}

}  // namespace mfsdp
