#include "core/plan/newton_schulz.hpp"

#include <algorithm>

#include "core/base/quantity.hpp"
#include "core/plan/kernel_spec.hpp"

namespace mfsdp {
namespace {

/// Products of polynomials of R: in each step R^2; but in the first after R was made, Z Q; but in
/// the last before X is made, W = Z R and Z W.
constexpr std::int64_t symmetric_products() {
  std::int64_t products = 0;
  for (int step = 1; step <= kNewtonSchulzSteps; ++step) {
    const bool begins = step == 1 || step == kNewtonSchulzRestart + 1;
    const bool ends = step == kNewtonSchulzSteps || step == kNewtonSchulzRestart;
    products += 1 + (begins ? 0 : 1) + (ends ? 0 : 2);
  }
  return products;
}
static_assert(symmetric_products() == 14);

constexpr std::int64_t kTimesX = 2;  ///< R is made of X twice, and X of Q and X

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
  std::vector<OrthogonalProduct> all;
  add_symmetric(all, m, m, symmetric_products());
  add_symmetric(all, m, n, kTimesX);
  all.push_back({.rows = m, .cols = n, .inner = m, .times = kTimesX});
  return all;
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
  // The norm reads the matrix, a copy is made of it, and another becomes the result.
  constexpr std::int64_t kOfMatrix = 1 + 2 + 2;
  // Mirrored: half is read and half is written. Z reads R and half of its square, and is written.
  constexpr std::int64_t kMirrored = symmetric_products() - kNewtonSchulzSteps + kTimesX;
  const std::int64_t halves = 2 * kMirrored + 5 * kNewtonSchulzSteps;
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
