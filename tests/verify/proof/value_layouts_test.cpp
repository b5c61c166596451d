#include "verify/proof/values/value_layouts.hpp"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <vector>

namespace mfsdp {
namespace {

constexpr ValueLayout kWhole = ValueLayout::whole;
constexpr ValueLayout kRows = ValueLayout::rows;
constexpr ValueLayout kColumns = ValueLayout::columns;
constexpr ValueLayout kPartial = ValueLayout::partial;
constexpr std::array kLayouts{kWhole, kRows, kColumns, kPartial};

using LayoutValues = std::vector<double>;  ///< of a matrix, row by row

/// A matrix on two ranks.
struct TwoRanks {
  std::array<LayoutValues, 2> on;
  std::int64_t rows = 0;  ///< of one rank
  std::int64_t cols = 0;
};

/// How two ranks have a matrix in some layout.
TwoRanks spread_over_two(const LayoutValues& all, std::int64_t n_rows, std::int64_t n_cols,
                         ValueLayout layout) {
  TwoRanks pair{.on = {}, .rows = n_rows, .cols = n_cols};
  if (layout == ValueLayout::rows) pair.rows /= 2;
  if (layout == kColumns) pair.cols /= 2;
  for (std::int64_t rank = 0; rank < 2; ++rank)
    for (std::int64_t i = 0; i < pair.rows; ++i)
      for (std::int64_t j = 0; j < pair.cols; ++j) {
        const std::int64_t row = i + (layout == ValueLayout::rows ? rank * pair.rows : 0);
        const std::int64_t col = j + (layout == kColumns ? rank * pair.cols : 0);
        const double value = all[static_cast<std::size_t>(row * n_cols + col)];
        // Terms that are no halves, so that a partial value is like no other.
        const double term = rank == 0 ? 3 * value + 1 : -2 * value - 1;
        pair.on[static_cast<std::size_t>(rank)].push_back(layout == kPartial ? term : value);
      }
  return pair;
}

LayoutValues layout_numbers(std::int64_t count, int seed) {
  LayoutValues values;
  for (std::int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>((i * 7 + seed * 5) % 11 - 5));
  return values;
}

/// sum over k of a(i, k) * b(j, k)
LayoutValues layout_product(const LayoutValues& a, const LayoutValues& b, std::int64_t m,
                            std::int64_t n, std::int64_t k, bool a_by_columns, bool b_by_columns) {
  LayoutValues out(static_cast<std::size_t>(m * n));
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t l = 0; l < k; ++l)
        out[static_cast<std::size_t>(i * n + j)] +=
            a[static_cast<std::size_t>(a_by_columns ? l * m + i : i * k + l)] *
            b[static_cast<std::size_t>(b_by_columns ? l * n + j : j * k + l)];
  return out;
}

/// Whether what two ranks have is the matrix in that layout: terms add up to it.
bool is_in_layout(const std::array<LayoutValues, 2>& on, const LayoutValues& all,
                  std::int64_t n_rows, std::int64_t n_cols, ValueLayout layout) {
  if (layout == kPartial) {
    if (on[0].size() != all.size() || on[1].size() != all.size()) return false;
    for (std::size_t i = 0; i < all.size(); ++i)
      if (on[0][i] + on[1][i] != all[i]) return false;
    return true;
  }
  return on == spread_over_two(all, n_rows, n_cols, layout).on;
}

/// Computes a linear layer of 4 tokens, 6 inputs and 8 outputs, and its gradients, on two ranks, in
/// all layouts of its values: a rule accepts just those in which the ranks have the layer's result
/// in the layout that it states.
TEST(ValueLayouts, RulesOfALinearLayerAreWhatTwoRanksCompute) {
  constexpr std::int64_t m = 4, k = 6, n = 8;
  const LayoutValues x = layout_numbers(m * k, 1), w = layout_numbers(n * k, 2),
                     dy = layout_numbers(m * n, 3);
  const std::map<WeightCut, ValueLayout> cuts{
      {WeightCut::none, kWhole}, {WeightCut::outputs, kRows}, {WeightCut::inputs, kColumns}};
  int accepted = 0;
  for (const auto& [cut, of_weight] : cuts) {
    const TwoRanks weight = spread_over_two(w, n, k, of_weight);
    for (const ValueLayout in : kLayouts) {
      // forward: y = x w^T
      const TwoRanks a = spread_over_two(x, m, k, in);
      std::array<LayoutValues, 2> y;
      if (const auto made =
              made_by(KernelKind::gemm, 0, cut, std::array{ReadLayout{"input", in}})) {
        ++accepted;
        ASSERT_EQ(a.cols, weight.cols);
        for (std::size_t r : {0, 1})
          y[r] = layout_product(a.on[r], weight.on[r], a.rows, weight.rows, a.cols, false, false);
        EXPECT_TRUE(
            is_in_layout(y, layout_product(x, w, m, n, k, false, false), m, n, made->values));
      }
      // input gradient: dx = dy w
      const TwoRanks d = spread_over_two(dy, m, n, in);
      if (const auto made =
              made_by(KernelKind::gemm, 1, cut, std::array{ReadLayout{"d_output", in}})) {
        ++accepted;
        ASSERT_EQ(d.cols, weight.rows);
        for (std::size_t r : {0, 1})
          y[r] = layout_product(d.on[r], weight.on[r], d.rows, weight.cols, d.cols, false, true);
        EXPECT_TRUE(
            is_in_layout(y, layout_product(dy, w, m, k, n, false, true), m, k, made->values));
      }
      // weight gradient: dw = dy^T x
      for (const ValueLayout other : kLayouts) {
        const auto made =
            made_by(KernelKind::gemm, 2, cut,
                    std::array{ReadLayout{"d_output", in}, ReadLayout{"input", other}});
        if (!made) continue;
        ++accepted;
        const TwoRanks b = spread_over_two(x, m, k, other);
        ASSERT_EQ(d.rows, b.rows);
        for (std::size_t r : {0, 1})
          y[r] = layout_product(d.on[r], b.on[r], d.cols, b.cols, d.rows, true, true);
        const LayoutValues all = layout_product(dy, x, n, k, m, true, true);
        EXPECT_TRUE(is_in_layout(y, all, n, k, made->gradient == kPartial ? kPartial : of_weight));
      }
    }
  }
  // Whole weight: whole, rows or terms, of a weight's gradient on either side; each cut: one each.
  EXPECT_EQ(accepted, 3 + 3 + 4 + 2 * 3);
}

TEST(ValueLayouts, KernelsOfRowsAndOfColumns) {
  const auto made = [](KernelKind kind, ValueLayout in) {
    return made_by(kind, 0, WeightCut::none, std::array{ReadLayout{"input", in}});
  };
  EXPECT_EQ(made(KernelKind::swiglu_forward, kColumns)->values, kColumns);
  EXPECT_EQ(made(KernelKind::swiglu_forward, kRows)->values, kRows);
  EXPECT_FALSE(made(KernelKind::swiglu_forward, kPartial));
  EXPECT_EQ(made(KernelKind::attention_forward, kColumns)->values, kColumns);
  EXPECT_EQ(made(KernelKind::rms_norm_backward, kRows)->gradient, kPartial);
  EXPECT_EQ(made(KernelKind::rms_norm_forward, kWhole)->values, kWhole);
  for (const ValueLayout in : {kColumns, kPartial}) {
    EXPECT_FALSE(made(KernelKind::rms_norm_forward, in));
    EXPECT_FALSE(made(KernelKind::cross_entropy, in));
  }
  EXPECT_EQ(made(KernelKind::rms_norm_forward, kPartial).error().what,
            "reads operand 'input' in layout partial along tp; expected whole");
  // A part of the heads is not all of them, and a whole row has more heads than a rank's kernel.
  EXPECT_FALSE(made(KernelKind::attention_forward, kWhole));
}

TEST(ValueLayouts, CollectivesMoveValues) {
  using enum CollectiveKind;
  EXPECT_EQ(moved_by(all_reduce, Reduction::sum, kPartial), kWhole);
  EXPECT_EQ(moved_by(reduce_scatter, Reduction::sum, kPartial), kRows);
  EXPECT_EQ(moved_by(all_gather, Reduction::none, kRows), kWhole);
  for (const ValueLayout from : {kWhole, kRows, kColumns})
    EXPECT_FALSE(moved_by(all_reduce, Reduction::sum, from)) << to_string(from);
  EXPECT_FALSE(moved_by(all_gather, Reduction::none, kColumns));
  EXPECT_FALSE(moved_by(all_to_all, Reduction::none, kRows));
}

TEST(ValueLayouts, AWeightIsCutAlongOneOfTwoDims) {
  const auto cut = [](Axis axis, std::int64_t dim) {
    return cut_of({{.axis = axis, .kind = PlacementKind::shard, .dim = dim}});
  };
  EXPECT_EQ(cut_of({}), WeightCut::none);
  EXPECT_EQ(cut(Axis::ep, 0), WeightCut::none);
  EXPECT_EQ(cut(Axis::tp, 0), WeightCut::outputs);
  EXPECT_EQ(cut(Axis::tp, 1), WeightCut::inputs);
  EXPECT_EQ(cut(Axis::tp, 2), std::nullopt);
}

}  // namespace
}  // namespace mfsdp
