#include "verify/cpu/kernels/exact.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/verify/cpu/kernels/gradients.hpp"
#include "verify/cpu/kernels/optimizer.hpp"
#include "verify/cpu/kernels/sums.hpp"

namespace mfsdp::kernels {
namespace {

using ::testing::HasSubstr;

TEST(GridSums, RoundsToTheNearestEvenStep) {
  GridSums<float> sums(-2, 1 << 22);  // steps of 0.25
  const std::array pieces{0.125F, 0.375F, 0.3751F, -0.125F, -0.375F, -0.6F, 1e6F};
  std::vector<float> out(pieces.size(), -1);
  sums.add(std::span<const float>(pieces), false, out.data());
  // 0.125 lies between 0 and 1 step, 0.375 between 1 and 2: even are 0 and 2.
  EXPECT_EQ(out, (std::vector{0.0F, 0.5F, 0.5F, -0.0F, -0.5F, -0.5F, 1e6F}));
  EXPECT_TRUE(sums.result("kernel"));
}

TEST(GridSums, AddsToWhatIsThere) {
  GridSums<float> sums(0, 1 << 22);
  const std::array pieces{0.4F, 1.6F};
  std::array out{7.0F, -1.0F};
  sums.add(std::span<const float>(pieces), true, out.data());
  EXPECT_EQ(out, (std::array{7.0F, 1.0F}));
}

TEST(GridSums, NamesThePieceThatIsTooLarge) {
  for (const float piece : {10.5F, -11.0F, std::numeric_limits<float>::infinity(),
                            std::numeric_limits<float>::quiet_NaN()}) {
    GridSums<float> sums(-1, 20);  // up to 10
    const std::array pieces{1.0F, piece, 3.0F};
    std::array<float, 3> out{};
    sums.add(std::span<const float>(pieces), false, out.data());
    const auto outcome = sums.result("kernel gemm: operand weight_grad");
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().message(),
              fmt::format("kernel gemm: operand weight_grad: --exact-sums expects sums of at most "
                          "10 in magnitude, so that none over all ranks leaves 24 bits above 2^-1; "
                          "got {}",
                          piece));
  }
}

TEST(GridSums, NamesTheSumThatIsTooLarge) {
  GridSums<float> sums(0, 100);
  const std::array pieces{60.0F};
  std::array out{0.0F};
  sums.add(std::span<const float>(pieces), true, out.data());
  EXPECT_TRUE(sums.result(""));
  sums.add(std::span<const float>(pieces), true, out.data());
  ASSERT_FALSE(sums.result(""));
  EXPECT_THAT(sums.result("").error().message(), HasSubstr("got 120"));
}

// The limits guarantee exact sums: if pieces lie on the grid and no partial sum leaves 24 bits,
// they have one sum in floats in any order.
RC_GTEST_PROP(GridSums, HaveNoOrder, ()) {
  const auto exponent = *rc::gen::inRange<std::int64_t>(-20, 5);
  auto values = *rc::gen::container<std::vector<int>>(8, rc::gen::inRange(-(1 << 21), 1 << 21));
  GridSums<float> sums(exponent, 1 << 21);
  std::vector<float> pieces;
  for (const int value : values)
    pieces.push_back(std::ldexp(static_cast<float>(value) + 0.3F, static_cast<int>(exponent)));
  std::vector<float> rounded(pieces.size());
  sums.add(std::span<const float>(pieces), false, rounded.data());
  const auto total = [&] {
    float sum = 0;
    for (const float piece : rounded) sum += piece;
    return sum;
  };
  const float expected = total();
  for (int i = 0; i < 5; ++i) {
    std::ranges::rotate(rounded, rounded.begin() + *rc::gen::inRange(1, 7));
    RC_ASSERT(total() == expected);
  }
}

// Pieces of 3 of 6 tokens; sums of whole numbers are exact in any way of adding.
TEST(ExactWeightGradient, IsTheSumOfItsPieces) {
  constexpr std::int64_t tokens = 6;
  constexpr std::int64_t n = 4;
  constexpr std::int64_t k = 5;
  std::vector<float> dy(tokens * n);
  std::vector<float> x(tokens * k);
  for (std::size_t i = 0; i < dy.size(); ++i) dy[i] = static_cast<float>(i % 7) - 3;
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 5) - 1.5F;
  std::vector<float> workspace(static_cast<std::size_t>(tile_workspace(n, k, 3)));
  std::vector<float> out(n * k, 1);
  Gemm<float, float> g{.rows = n, .cols = k, .inner = tokens};
  g.a = {.data = dy.data(), .row = n, .transposed = true};
  g.b = {.data = x.data(), .row = k};
  g.c = out.data();
  g.adds = true;
  g.pieces.rows = 3;
  g.workspace = std::as_writable_bytes(std::span(workspace));
  GridSums<float> sums(1, 1 << 20);  // steps of 2: halves and ones are rounded away, by piece
  exact_weight_gradient(g, sums);
  for (std::int64_t i = 0; i < n; ++i)
    for (std::int64_t j = 0; j < k; ++j) {
      double expected = 1;
      for (std::int64_t begin = 0; begin < tokens; begin += 3) {
        double piece = 0;
        for (std::int64_t t = begin; t < begin + 3; ++t)
          piece += dy[static_cast<std::size_t>(t * n + i)] * x[static_cast<std::size_t>(t * k + j)];
        expected += 2 * std::nearbyint(piece / 2);
      }
      EXPECT_EQ(out[static_cast<std::size_t>(i * k + j)], expected) << i << ", " << j;
    }
}

TEST(ExactNorm, SquaresWholeSteps) {
  const std::array gradients{0.5F, -1.5F, 0.0F};  // 1 and 3 steps of 0.5
  std::optional<float> outlier;
  EXPECT_EQ(exact_sum_of_squares(gradients, -1, outlier), 1 + 9);
  EXPECT_FALSE(outlier);
  const std::array<std::int64_t, 2> partials{10, 6};
  EXPECT_EQ(finish_norm(partials, -1, 1, 0).norm, 2);  // sqrt(16 * 0.25)
}

TEST(ExactNorm, RefusesGradientsThatNobodyRounded) {
  for (const float wrong : {0.25F, 0x1p24F, std::numeric_limits<float>::quiet_NaN()}) {
    const std::array gradients{0.5F, wrong};
    std::optional<float> outlier;
    EXPECT_EQ(exact_sum_of_squares(gradients, -1, outlier), 0);
    ASSERT_TRUE(outlier);
  }
}

// World sizes cut a group into other slices: an update may not depend on an element's place in
// one, as it would where the rest of a vectorised loop rounded otherwise.
TEST(Update, OfAnElementDoesNotDependOnItsPlace) {
  constexpr std::size_t count = 67;
  test::RandomValues random(3);
  const auto floats = [&] {
    std::vector<float> made;
    for (const double value : random(count)) made.push_back(static_cast<float>(value));
    return made;
  };
  const std::vector<float> gradients = floats();
  const std::vector<float> weights = floats();
  const std::vector<float> first = floats();
  std::vector<float> second = floats();
  for (float& value : second) value *= value;
  const UpdateStep<float> step{.learning_rate = 1e-3F,
                               .keep = 1 - 1e-3F * 0.1F,
                               .beta1 = 0.9F,
                               .beta2 = 0.95F,
                               .epsilon = 1e-8F,
                               .corrected_rate = 1e-3F / 0.19F,
                               .correction_root = std::sqrt(0.0975F)};
  const auto update = [&](std::size_t slice) {
    std::vector<float> w = weights;
    std::vector<float> m = first;
    std::vector<float> v = second;
    for (std::size_t begin = 0; begin < count; begin += slice)
      advance<AdamwRule>(step, 0.37F, static_cast<std::int64_t>(std::min(slice, count - begin)),
                         gradients.data() + begin, {m.data() + begin, v.data() + begin},
                         w.data() + begin);
    return std::tuple(w, m, v);
  };
  const auto whole = update(count);
  for (const std::size_t slice : {1U, 3U, 4U, 7U, 8U, 16U, 17U, 33U})
    EXPECT_EQ(update(slice), whole) << slice;
}

}  // namespace
}  // namespace mfsdp::kernels
