#include "verify/cpu/kernels/product.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "tests/support/samples.hpp"

namespace mfsdp {
namespace {

struct ProductSizes {
  std::int64_t m, n, k;
};

template <class R>
struct ProductOperands {
  ProductOperands(ProductSizes s, bool a_transposed, bool b_transposed, std::uint32_t seed)
      : sizes(s),
        a_values(random(seed, s.m * s.k)),
        b_values(random(seed + 1, s.k * s.n)),
        before(random(seed + 2, s.m * s.n)),
        a{.data = a_values.data(), .row = a_transposed ? s.m : s.k, .transposed = a_transposed},
        b{.data = b_values.data(), .row = b_transposed ? s.k : s.n, .transposed = b_transposed} {}

  static std::vector<R> random(std::uint32_t seed, std::int64_t count) {
    std::mt19937 words(seed);  // the same on every machine, as distributions need not be
    std::vector<R> values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<R>(words()) * R(0x1p-31) - R(1));
    return values;
  }

  ProductSizes sizes;
  std::vector<R> a_values, b_values, before;
  Matrix<const R> a, b;
};

/// The chain that multiply() promises, element by element.
template <class R>
std::vector<R> expected_product(const ProductOperands<R>& o, bool adds) {
  const auto at = [](const Matrix<const R>& m, std::int64_t row, std::int64_t col) {
    return m.transposed ? m.data[col * m.row + row] : m.data[row * m.row + col];
  };
  std::vector<R> c = o.before;
  for (std::int64_t i = 0; i < o.sizes.m; ++i)
    for (std::int64_t j = 0; j < o.sizes.n; ++j) {
      R& sum = c[static_cast<std::size_t>(i * o.sizes.n + j)];
      if (!adds) sum = 0;
      for (std::int64_t k = 0; k < o.sizes.k; ++k) {
        const R product = at(o.a, i, k) * at(o.b, k, j);
        sum += product;
      }
    }
  return c;
}

template <class R, class Multiply>
std::vector<R> product_by(const Multiply& multiply, const ProductOperands<R>& o, bool adds) {
  std::vector<R> c = o.before;
  multiply(o.a, o.b, {.data = c.data(), .row = o.sizes.n}, o.sizes.m, o.sizes.n, o.sizes.k, adds);
  return c;
}

void chosen_product(Matrix<const float> a, Matrix<const float> b, Matrix<float> c, std::int64_t m,
                    std::int64_t n, std::int64_t k, bool adds) {
  multiply(a, b, c, m, n, k, adds);
}

void expect_every_variant_keeps_to_the_chain(ProductSizes sizes, bool a_transposed,
                                             bool b_transposed, bool adds, std::uint32_t seed) {
  const ProductOperands<float> floats(sizes, a_transposed, b_transposed, seed);
  const ProductOperands<double> doubles(sizes, a_transposed, b_transposed, seed);
  const std::vector<float> expected_floats = expected_product(floats, adds);
  const std::vector<double> expected_doubles = expected_product(doubles, adds);
  for (const ProductVariant& variant : product_variants()) {
    SCOPED_TRACE(variant.instructions);
    EXPECT_EQ(product_by(*variant.multiply, floats, adds), expected_floats);
    EXPECT_EQ(product_by(*variant.multiply_double, doubles, adds), expected_doubles);
  }
}

RC_GTEST_PROP(Product, IsOneChainAnElementWithEveryInstructionSet,
              (std::uint32_t seed, bool at, bool bt, bool adds)) {
  const auto size = [](int most) { return *rc::gen::inRange(0, most); };
  expect_every_variant_keeps_to_the_chain({size(70), size(150), size(40)}, at, bt, adds, seed);
}

// More rows, columns and inner elements than are packed at a time, and no multiples of them.
TEST(Product, IsOneChainAnElementAcrossBlocks) {
  test::Sample sample;
  for (const bool transposed : {false, true})
    if (sample.takes_next())
      expect_every_variant_keeps_to_the_chain({195, 515, 259}, transposed, !transposed, transposed,
                                              7);
}

// The bits of a row must not depend on the rows beside it. Prescott's code in OpenBLAS broke this.
// The experts' GEMMs and column splits rely on it too.
TEST(Product, BitsOfAnElementDoNotDependOnWhatElseIsComputed) {
  const ProductOperands<float> o({64, 96, 128}, false, true, 3);
  const std::vector<float> whole = product_by(chosen_product, o, false);
  for (const std::int64_t rows : {1, 2, 3, 5, 7, 12, 13, 31})
    for (const std::int64_t cols : {1, 3, 16, 31, 33}) {
      const std::int64_t row = 64 - rows;
      const std::int64_t col = 96 - cols;
      std::vector<float> part(static_cast<std::size_t>(rows * cols));
      multiply({.data = o.a.data + row * o.a.row, .row = o.a.row},
               {.data = o.b.data + col * o.b.row, .row = o.b.row, .transposed = true},
               Matrix<float>{.data = part.data(), .row = cols}, rows, cols, 128);
      for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < cols; ++j)
          ASSERT_EQ(part[static_cast<std::size_t>(i * cols + j)],
                    whole[static_cast<std::size_t>((row + i) * 96 + col + j)]);
    }
}

// FNV-1a over the bits. The number came from one CPU and holds on all: x86-64 and Arm.
TEST(Product, HasTheSameBitsOnEveryMachine) {
  const ProductOperands<float> o({33, 65, 129}, true, false, 11);
  std::uint64_t digest = 0xcbf29ce484222325U;
  for (const float value : product_by(chosen_product, o, true))
    digest = (digest ^ std::bit_cast<std::uint32_t>(value)) * 0x100000001b3U;
  EXPECT_EQ(digest, 17252513588836881469U);
}

}  // namespace
}  // namespace mfsdp
