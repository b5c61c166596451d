#include "verify/cpu/kernels/gemm.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/verify/cpu/kernels/gradients.hpp"

namespace mfsdp::kernels {
namespace {

using test::RandomValues;
using test::Values;

/// The definition, element by element.
template <class T, class C>
double element(const Gemm<T, C>& g, std::int64_t i, std::int64_t j) {
  const auto at = [](const Matrix<const T>& m, std::int64_t row, std::int64_t col) {
    return static_cast<double>(
        widen(m.transposed ? m.data[col * m.row + row] : m.data[row * m.row + col]));
  };
  double sum = g.bias == nullptr ? 0 : widen(g.bias[j]);
  for (std::int64_t k = 0; k < g.inner; ++k) sum += at(g.a, i, k) * at(g.b, k, j);
  return sum;
}

template <class T>
std::vector<T> narrowed(const Values& values) {
  std::vector<T> result;
  for (const double value : values) result.push_back(narrow<T>(static_cast<Real<T>>(value)));
  return result;
}

struct Sizes {
  std::int64_t rows, cols, inner;
};

/// Runs a random GEMM of types T -> C and returns its worst error against the definition, in units
/// of sqrt(inner).
template <class T, class C>
double worst_error(Sizes s, bool a_transposed, bool b_transposed, bool bias, bool adds,
                   std::uint32_t seed) {
  RandomValues random(seed);
  const auto a = narrowed<T>(random(s.rows * s.inner));
  const auto b = narrowed<T>(random(s.inner * s.cols));
  const auto biases = narrowed<T>(random(s.cols));
  auto c = narrowed<C>(random(s.rows * s.cols));
  const auto before = c;
  std::vector<Real<T>> workspace(static_cast<std::size_t>(
      gemm_workspace(Gemm<T, C>{.rows = s.rows, .cols = s.cols, .inner = s.inner})));
  const Gemm<T, C> g{
      .rows = s.rows,
      .cols = s.cols,
      .inner = s.inner,
      .a = {.data = a.data(), .row = a_transposed ? s.rows : s.inner, .transposed = a_transposed},
      .b = {.data = b.data(), .row = b_transposed ? s.inner : s.cols, .transposed = b_transposed},
      .bias = bias ? biases.data() : nullptr,
      .c = c.data(),
      .adds = adds,
      .workspace = std::as_writable_bytes(std::span(workspace))};
  gemm(g);
  double worst = 0;
  // Large GEMMs are checked by a sample that covers every tile and the last element.
  const std::int64_t count = s.rows * s.cols;
  for (std::int64_t at = count - 1; at >= 0; at -= count > 10'000 ? 997 : 1) {
    const auto index = static_cast<std::size_t>(at);
    const double expected =
        element(g, at / s.cols, at % s.cols) + (adds ? widen(before[index]) : 0);
    worst = std::max(worst, std::fabs(widen(c[index]) - expected));
  }
  return worst / std::sqrt(static_cast<double>(s.inner));
}

RC_GTEST_PROP(Gemm, IsTheDefinitionInDouble, (std::uint32_t seed, bool at, bool bt)) {
  const Sizes s{*rc::gen::inRange(1, 40), *rc::gen::inRange(1, 40), *rc::gen::inRange(1, 40)};
  RC_ASSERT((worst_error<double, double>(s, at, bt, seed % 2 == 0, false, seed)) < 1e-14);
  RC_ASSERT((worst_error<double, double>(s, at, bt, false, true, seed)) < 1e-14);
}

// Values are about sqrt(inner); bf16 keeps 8 bits of each, so that half an ulp is at most 2^-9 of
// it, and five standard deviations cover the largest of some thousand.
RC_GTEST_PROP(Gemm, RoundsOnceTo16Bits, (std::uint32_t seed, bool at, bool bt, bool adds)) {
  const Sizes s{*rc::gen::inRange(1, 30), *rc::gen::inRange(1, 30), *rc::gen::inRange(1, 30)};
  RC_ASSERT((worst_error<Bf16, Bf16>(s, at, bt, !adds, adds, seed)) < 16 * 0x1p-9);
  RC_ASSERT((worst_error<Bf16, float>(s, at, bt, false, adds, seed)) < 1e-5);
  RC_ASSERT((worst_error<float, Fp16>(s, at, bt, false, adds, seed)) < 16 * 0x1p-11);
}

/// Scaled, and into columns of wider rows, of which all others stay.
template <class T, class C>
void check_columns(Sizes s, std::uint32_t seed) {
  RandomValues random(seed);
  const std::int64_t pitch = s.cols + 3;
  const auto a = narrowed<T>(random(s.rows * s.inner));
  const auto b = narrowed<T>(random(s.inner * s.cols));
  auto c = narrowed<C>(random(s.rows * pitch));
  const auto before = c;
  Gemm<T, C> g{.rows = s.rows,
               .cols = s.cols,
               .inner = s.inner,
               .a = {.data = a.data(), .row = s.inner},
               .b = {.data = b.data(), .row = s.cols},
               .c = c.data() + 2,
               .c_row = pitch,
               .adds = true,
               .scale = Real<T>(0.75)};
  std::vector<Real<T>> workspace(static_cast<std::size_t>(gemm_workspace(g)));
  g.workspace = std::as_writable_bytes(std::span(workspace));
  gemm(g);
  for (std::int64_t i = 0; i < s.rows; ++i)
    for (std::int64_t j = 0; j < pitch; ++j) {
      const auto at = static_cast<std::size_t>(i * pitch + j);
      if (j < 2 || j >= s.cols + 2) {
        EXPECT_EQ(widen(c[at]), widen(before[at])) << i << ", " << j;
        continue;
      }
      const double expected = 0.75 * element(g, i, j - 2) + widen(before[at]);
      // bf16 has 8 bits, for values below 16; fp32 and fp64 round each addition.
      const double half_an_ulp = std::is_same_v<C, Bf16> ? 16 * 0x1p-9 : 1e-5;
      EXPECT_NEAR(widen(c[at]), expected, half_an_ulp);
    }
}

TEST(Gemm, AddsAScaledProductToColumnsOfWiderRows) {
  check_columns<double, double>({7, 5, 3}, 1);
  check_columns<float, float>({13, 17, 4}, 2);
  check_columns<Bf16, Bf16>({9, 6, 8}, 3);
  check_columns<Bf16, float>({1, 4, 5}, 4);
}

/// Wider than a tile in every direction, with an uneven rest: 515 x 1030 x 4099.
TEST(Gemm, TilesWhatDoesNotFitTheWorkspace) {
  const Sizes s{kTileRows + 3, kTileCols + 6, kTileInner + 3};
  // The operands of the whole GEMM would need (515 + 1030) * 4099 + 515 * 1030 floats.
  EXPECT_EQ((gemm_workspace(Gemm<Bf16, float>{.rows = s.rows, .cols = s.cols, .inner = s.inner})),
            512 * 4096 + 4096 * 1024 + 512 * 1024);
  EXPECT_LT((worst_error<Bf16, float>(s, true, false, true, true, 7)), 1e-5);
}

}  // namespace
}  // namespace mfsdp::kernels
