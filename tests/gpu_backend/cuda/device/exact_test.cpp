// The kernels of --exact-sums against the CPU's. With these numbers every multiplication and the
// sum of every piece is exact in fp32: only the rounding to the grid remains, and bits must be
// equal.
#include "verify/cpu/kernels/exact.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "gpu_backend/cuda/gemm_call.hpp"
#include "gpu_backend/cuda/kernels/norm.hpp"
#include "gpu_backend/cuda/kernels/rope.hpp"
#include "gpu_backend/cuda/kernels/sums.hpp"
#include "gpu_backend/cuda/kernels/tokens.hpp"
#include "tests/gpu_backend/cuda/device/launch.hpp"
#include "verify/cpu/kernels/sums.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::GradientGrid;
using kernels::GridSums;

/// Sums of quarters are rounded to whole numbers.
constexpr GradientGrid kWhole{.exponent = 0, .limit = 1 << 20};

/// Multiples of 1/4 from -2 to 2.
template <class T>
std::vector<T> quarters(std::int64_t count, std::uint32_t seed) {
  std::mt19937 bits(seed);
  std::vector<T> values(static_cast<std::size_t>(count));
  for (T& value : values) value = narrow<T>(static_cast<float>(bits() % 17) / 4 - 2);
  return values;
}

class Outlier {
 public:
  [[nodiscard]] ExactOutlier* place() const { return place_.data(); }
  [[nodiscard]] Result<void> result() const { return check_exact(place_.download().front()); }

 private:
  DeviceArray<ExactOutlier> place_{std::vector<ExactOutlier>(1)};
};

/// The columns of rows added up, as the second stage does.
std::vector<float> column_totals(const std::vector<float>& rows, std::int64_t cols) {
  std::vector<float> totals(static_cast<std::size_t>(cols));
  for (std::size_t i = 0; i < rows.size(); ++i) totals[i % totals.size()] += rows[i];
  return totals;
}

TEST(DeviceExact, AccumulateRoundsToTheGrid) {
  const GradientGrid grid{.exponent = -3, .limit = 1 << 20};
  for (const std::int64_t count : {1, 1000})
    for (const bool adds : {false, true}) {
      const auto in = random_values<float>(count, 1, 10);
      std::vector<float> expected(in.size(), 2.125F);
      const DeviceArray<float> d_in(in), out(expected);
      const Outlier outlier;
      expect_runs(accumulate(
          kernels::Accumulate<float, float>{
              .count = count, .in = d_in.data(), .adds = adds, .out = out.data(), .grid = grid},
          nullptr, outlier.place()));
      GridSums<float> sums(grid);
      sums.add(std::span<const float>(in), adds, expected.data());
      EXPECT_EQ(out.download(), expected);
      EXPECT_TRUE(outlier.result());
    }
}

TEST(DeviceExact, SumOfRanksStaysOnTheGrid) {
  const GradientGrid grid{.exponent = -3, .limit = 1 << 20};
  for (const bool adds : {false, true}) {
    const std::vector<float> in{1.125F, -2.5F, 3, 0.25F, 4, 1.375F};  // three ranks of two
    std::vector<float> expected(2, 2.125F);
    const DeviceArray<float> d_in(in), out(expected);
    const Outlier outlier;
    expect_runs(sum_ranks(kernels::SumRanks<float, float>{.ranks = 3,
                                                          .count = 2,
                                                          .in = d_in.data(),
                                                          .adds = adds,
                                                          .out = out.data(),
                                                          .grid = grid},
                          nullptr, outlier.place()));
    const std::vector<float> sums{1.125F + 3 + 4, -2.5F + 0.25F + 1.375F};
    GridSums<float>(grid).add(std::span<const float>(sums), adds, expected.data());
    EXPECT_EQ(out.download(), expected);
    EXPECT_TRUE(outlier.result());
  }
}

TEST(DeviceExact, TheFirstOutlierIsReported) {
  const GradientGrid grid{.exponent = 1, .limit = 4};  // at most 8
  for (const float value : {8.0F, 9.0F, -9.0F, std::nanf("")}) {
    const DeviceArray<float> in(std::vector<float>{1, value, 3}), out(3);
    const Outlier outlier;
    expect_runs(accumulate(
        kernels::Accumulate<float, float>{
            .count = 3, .in = in.data(), .adds = false, .out = out.data(), .grid = grid},
        nullptr, outlier.place()));
    EXPECT_EQ(outlier.result().has_value(), value == 8.0F) << value;
  }
}

TEST(DeviceExact, WithoutAPlaceForOutliersNothingIsLaunched) {
  EXPECT_FALSE(accumulate(kernels::Accumulate<float, float>{.grid = kWhole}, nullptr));
}

template <class T>
void check_columns(std::int64_t rows, std::int64_t cols, std::int64_t piece) {
  SCOPED_TRACE(testing::Message() << rows << " x " << cols << " by " << piece);
  for (const bool adds : {false, true}) {
    const auto in = quarters<T>(rows * cols, 1);
    std::vector<float> expected(static_cast<std::size_t>(cols), 3);
    const DeviceArray<T> d_in(in);
    const DeviceArray<float> out(expected);
    const Outlier outlier;
    kernels::ColumnSums<T, float> call{.rows = rows,
                                       .cols = cols,
                                       .in = d_in.data(),
                                       .adds = adds,
                                       .out = out.data(),
                                       .pieces = {.rows = piece, .grid = kWhole}};
    expect_runs(column_sums(call, nullptr, outlier.place()));
    call.in = in.data();
    call.out = expected.data();
    std::vector<float> scratch(expected.size());
    GridSums<float> sums(kWhole);
    kernels::exact_column_sums(call, scratch.data(), sums);
    EXPECT_EQ(out.download(), expected);
    EXPECT_TRUE(outlier.result());
    EXPECT_TRUE(out.margin_is_whole());
  }
}

TEST(DeviceExact, ColumnSumsPieceByPiece) {
  check_columns<Bf16>(96, 333, 32);
  check_columns<float>(96, 64, 96);
  check_columns<float>(256, 40, 1);  // what norm_weight_grad does with partials
}

template <class T>
void check_norm(std::int64_t rows, std::int64_t cols, std::int64_t piece,
                std::int64_t partial_rows) {
  SCOPED_TRACE(testing::Message() << rows << " x " << cols << " by " << piece);
  const auto dy = quarters<T>(rows * cols, 1), x = quarters<T>(rows * cols, 2),
             weight = quarters<T>(cols, 3);
  const std::vector<float> rstd(static_cast<std::size_t>(rows), 0.5F);
  const DeviceArray<T> d_dy(dy), d_x(x), d_weight(weight), d_dx(rows * cols), normed(rows * cols);
  const DeviceArray<float> d_rstd(rstd), partials(partial_rows * cols);
  const Outlier outlier;
  kernels::RmsNormBackward<T> call{.rows = rows,
                                   .cols = cols,
                                   .partial_rows = partial_rows,
                                   .d_normed = d_dy.data(),
                                   .input = d_x.data(),
                                   .rstd = d_rstd.data(),
                                   .weight = d_weight.data(),
                                   .d_residual = d_dx.data(),
                                   .normed = normed.data(),
                                   .partials = partials.data(),
                                   .pieces = {.rows = piece, .grid = kWhole}};
  expect_runs(rms_norm_backward(call, nullptr, outlier.place()));
  std::vector<T> dx(dy.size()), again(dy.size());
  std::vector<float> expected(static_cast<std::size_t>(partial_rows * cols));
  call.d_normed = dy.data();
  call.input = x.data();
  call.rstd = rstd.data();
  call.weight = weight.data();
  call.d_residual = dx.data();
  call.normed = again.data();
  call.partials = expected.data();
  GridSums<float> sums(kWhole);
  kernels::exact_rms_norm_backward(call, sums);
  EXPECT_EQ(column_totals(partials.download(), cols), column_totals(expected, cols));
  EXPECT_LT(relative_error(d_dx.download(), widened(dx)), kTolerance<T>);
  EXPECT_LT(relative_error(normed.download(), widened(again)), kTolerance<T>);
  EXPECT_TRUE(outlier.result());
  EXPECT_TRUE(partials.margin_is_whole() && d_dx.margin_is_whole());
}

TEST(DeviceExact, NormBackwardPieceByPiece) {
  check_norm<Bf16>(96, 128, 32, 96);
  check_norm<float>(600, 100, 300, 256);  // more rows in a piece than partials
  check_norm<Bf16>(4, 7, 2, 4);
}

TEST(DeviceExact, NormOfHeadsPieceByPiece) {
  const kernels::RopeShape shape{
      .tokens = 12, .seq_len = 4, .heads = 5, .head_dim = 16, .turned = 16};
  constexpr std::int64_t partial_rows = 12;
  const std::int64_t width = shape.heads * shape.head_dim;
  const auto gradient = quarters<Bf16>(shape.tokens * width, 1),
             in = quarters<Bf16>(shape.tokens * width, 2),
             weight = quarters<Bf16>(shape.head_dim, 3);
  const std::vector<float> rstd(static_cast<std::size_t>(shape.tokens * shape.heads), 0.5F);
  // Angles of 0 and a quarter of a circle.
  std::vector<float> table;
  for (std::int64_t i = 0; i < shape.seq_len * shape.head_dim; ++i) {
    const bool is_cosine = i % shape.head_dim < shape.head_dim / 2;
    const bool is_turned = i / shape.head_dim % 2 == 1;
    table.push_back(is_cosine == is_turned ? 0.0F : 1.0F);
  }
  const auto call_on = [&](Bf16* gradients, const Bf16* inputs, const Bf16* weights,
                           const float* angles, const float* rstds, float* partials) {
    return kernels::QkNormRopeBackward<Bf16, float>{
        .shape = shape,
        .query_heads = 3,
        .partial_rows = partial_rows,
        .gradient = {.data = gradients, .row = width, .head = shape.head_dim},
        .in = {.data = inputs, .row = width, .head = shape.head_dim},
        .table = angles,
        .rstd = rstds,
        .query_weight = weights,
        .key_weight = weights,
        .partials = partials,
        .pieces = {.rows = shape.seq_len, .grid = kWhole}};
  };
  const DeviceArray<Bf16> d_gradient(gradient), d_in(in), d_weight(weight);
  const DeviceArray<float> d_table(table), d_rstd(rstd), partials(2 * partial_rows * 16);
  const Outlier outlier;
  expect_runs(qk_norm_rope_backward(call_on(d_gradient.data(), d_in.data(), d_weight.data(),
                                            d_table.data(), d_rstd.data(), partials.data()),
                                    nullptr, outlier.place()));
  auto expected_gradient = gradient;
  std::vector<float> expected(static_cast<std::size_t>(2 * partial_rows * 16));
  GridSums<float> sums(kWhole);
  kernels::exact_qk_norm_rope_backward(call_on(expected_gradient.data(), in.data(), weight.data(),
                                               table.data(), rstd.data(), expected.data()),
                                       sums);
  const auto got = partials.download();
  const auto half = static_cast<std::ptrdiff_t>(got.size() / 2);
  const auto totals = [&](const std::vector<float>& rows, bool keys) {
    return column_totals(keys ? std::vector(rows.begin() + half, rows.end())
                              : std::vector(rows.begin(), rows.begin() + half),
                         shape.head_dim);
  };
  for (const bool keys : {false, true}) EXPECT_EQ(totals(got, keys), totals(expected, keys));
  EXPECT_LT(relative_error(d_gradient.download(), widened(expected_gradient)), kTolerance<Bf16>);
  EXPECT_TRUE(outlier.result());
}

TEST(DeviceExact, LayerNormPieceByPiece) {
  constexpr std::int64_t rows = 96, cols = 128, piece = 32, partial_rows = 96;
  const auto dy = quarters<Bf16>(rows * cols, 1), x = quarters<Bf16>(rows * cols, 2),
             weight = quarters<Bf16>(cols, 3);
  const std::vector<float> mean(rows, 0.25F), rstd(rows, 0.5F);
  const DeviceArray<Bf16> d_dy(dy), d_x(x), d_weight(weight), d_dx(rows * cols);
  const DeviceArray<float> d_mean(mean), d_rstd(rstd), partials(2 * partial_rows * cols);
  const Outlier outlier;
  kernels::LayerNormBackward<Bf16> call{.rows = rows,
                                        .cols = cols,
                                        .partial_rows = partial_rows,
                                        .d_normed = d_dy.data(),
                                        .input = d_x.data(),
                                        .mean = d_mean.data(),
                                        .rstd = d_rstd.data(),
                                        .weight = d_weight.data(),
                                        .bias = d_weight.data(),
                                        .d_residual = d_dx.data(),
                                        .partials = partials.data(),
                                        .pieces = {.rows = piece, .grid = kWhole}};
  expect_runs(layer_norm_backward(call, nullptr, outlier.place()));
  std::vector<Bf16> dx(dy.size());
  std::vector<float> expected(static_cast<std::size_t>(2 * partial_rows * cols));
  call.d_normed = dy.data();
  call.input = x.data();
  call.mean = mean.data();
  call.rstd = rstd.data();
  call.weight = call.bias = weight.data();
  call.d_residual = dx.data();
  call.partials = expected.data();
  GridSums<float> sums(kWhole);
  kernels::exact_layer_norm_backward(call, sums);
  const auto got = partials.download();
  const auto half = static_cast<std::ptrdiff_t>(got.size() / 2);
  for (const std::ptrdiff_t begin : {std::ptrdiff_t{0}, half})
    EXPECT_EQ(column_totals({got.begin() + begin, got.begin() + begin + half}, cols),
              column_totals({expected.begin() + begin, expected.begin() + begin + half}, cols));
  EXPECT_LT(relative_error(d_dx.download(), widened(dx)), kTolerance<Bf16>);
  EXPECT_TRUE(outlier.result());
}

TEST(DeviceExact, NormOfAllHeadsPieceByPiece) {
  const kernels::RopeShape shape{
      .tokens = 12, .seq_len = 4, .heads = 5, .head_dim = 16, .turned = 16};
  constexpr std::int64_t partial_rows = 12, queries = 3;
  const std::int64_t width = shape.heads * shape.head_dim;
  const auto gradient = quarters<Bf16>(shape.tokens * width, 1),
             in = quarters<Bf16>(shape.tokens * width, 2), weight = quarters<Bf16>(width, 3);
  const std::vector<float> rstd(static_cast<std::size_t>(shape.tokens * 2), 0.5F);
  // No angle: cosines of 1, sines of 0.
  std::vector<float> table;
  for (std::int64_t i = 0; i < shape.seq_len * shape.head_dim; ++i)
    table.push_back(i % shape.head_dim < shape.head_dim / 2 ? 1.0F : 0.0F);
  const auto call_on = [&](Bf16* gradients, const Bf16* inputs, const Bf16* weights,
                           const float* angles, const float* rstds, float* partials) {
    return kernels::QkRowNormRopeBackward<Bf16, float>{
        .shape = shape,
        .query_heads = queries,
        .partial_rows = partial_rows,
        .gradient = {.data = gradients, .row = width, .head = shape.head_dim},
        .in = {.data = inputs, .row = width, .head = shape.head_dim},
        .table = angles,
        .rstd = rstds,
        .query_weight = weights,
        .key_weight = weights + queries * shape.head_dim,
        .partials = partials,
        .pieces = {.rows = shape.seq_len, .grid = kWhole}};
  };
  const DeviceArray<Bf16> d_gradient(gradient), d_in(in), d_weight(weight);
  const DeviceArray<float> d_table(table), d_rstd(rstd), partials(partial_rows * width);
  const Outlier outlier;
  expect_runs(qk_row_norm_rope_backward(call_on(d_gradient.data(), d_in.data(), d_weight.data(),
                                                d_table.data(), d_rstd.data(), partials.data()),
                                        nullptr, outlier.place()));
  auto expected_gradient = gradient;
  std::vector<float> expected(static_cast<std::size_t>(partial_rows * width));
  GridSums<float> sums(kWhole);
  kernels::exact_qk_row_norm_rope_backward(
      call_on(expected_gradient.data(), in.data(), weight.data(), table.data(), rstd.data(),
              expected.data()),
      sums);
  const auto got = partials.download();
  const std::ptrdiff_t keys = partial_rows * queries * shape.head_dim;
  EXPECT_EQ(column_totals({got.begin(), got.begin() + keys}, queries * shape.head_dim),
            column_totals({expected.begin(), expected.begin() + keys}, queries * shape.head_dim));
  EXPECT_EQ(
      column_totals({got.begin() + keys, got.end()}, width - queries * shape.head_dim),
      column_totals({expected.begin() + keys, expected.end()}, width - queries * shape.head_dim));
  EXPECT_LT(relative_error(d_gradient.download(), widened(expected_gradient)), kTolerance<Bf16>);
  EXPECT_TRUE(outlier.result());
}

TEST(DeviceExact, PositionsRowByRow) {
  constexpr std::int64_t seq = 5, tokens = 20, rows = 7, cols = 24;
  const auto dy = quarters<Bf16>(tokens * cols, 1);
  const DeviceArray<Bf16> d_dy(dy);
  const DeviceArray<float> gradient(rows * cols);
  const Outlier outlier;
  kernels::PositionEmbeddingBackward<Bf16, float> call{.rows = tokens,
                                                       .cols = cols,
                                                       .seq_len = seq,
                                                       .positions = rows,
                                                       .d_output = d_dy.data(),
                                                       .gradient = gradient.data(),
                                                       .pieces = {.rows = seq, .grid = kWhole}};
  expect_runs(position_embedding_backward(call, nullptr, outlier.place()));
  std::vector<float> expected(static_cast<std::size_t>(rows * cols));
  call.d_output = dy.data();
  call.gradient = expected.data();
  GridSums<float> sums(kWhole);
  kernels::exact_position_embedding_backward(call, sums);
  EXPECT_TRUE(same_bits(gradient.download(), expected));
  EXPECT_TRUE(outlier.result());
}

TEST(DeviceExact, EmbeddingPieceByPiece) {
  // Tokens that come once, often, and so often that several blocks share their rows.
  for (const std::int64_t vocab : {1, 3, 50})
    for (const bool adds : {false, true}) {
      constexpr std::int64_t tokens = 400, cols = 264;
      std::mt19937 bits(1);
      std::vector<std::int32_t> ids(tokens);
      for (auto& id : ids) id = static_cast<std::int32_t>(bits() % static_cast<unsigned>(vocab));
      const auto dy = quarters<Bf16>(tokens * cols, 2);
      std::vector<float> expected(static_cast<std::size_t>(vocab * cols), 5);
      const DeviceArray<std::int32_t> d_ids(ids);
      const DeviceArray<Bf16> d_dy(dy);
      const DeviceArray<float> gradient(expected);
      const DeviceArray<kernels::TokenPlace> d_order(tokens);
      const Outlier outlier;
      kernels::EmbeddingBackward<Bf16, float> call{.tokens = {d_ids.data(), ids.size()},
                                                   .cols = cols,
                                                   .vocab = vocab,
                                                   .d_output = d_dy.data(),
                                                   .order = {d_order.data(), ids.size()},
                                                   .adds = adds,
                                                   .gradient = gradient.data(),
                                                   .pieces = {.rows = 100, .grid = kWhole}};
      expect_runs(embedding_backward(call, nullptr, outlier.place()));
      std::vector<kernels::TokenPlace> order(ids.size());
      call.tokens = ids;
      call.d_output = dy.data();
      call.order = order;
      call.gradient = expected.data();
      GridSums<float> sums(kWhole);
      kernels::exact_embedding_backward(call, sums);
      EXPECT_EQ(gradient.download(), expected);
      EXPECT_TRUE(outlier.result());
    }
}

TEST(DeviceExact, WeightGradientPieceByPieceAndTileByTile) {
  // In 1 MiB of scratch: 512 KiB of results hold 512 of 600 rows of 256 columns.
  constexpr std::int64_t rows = 600, cols = 256, tokens = 96;
  const auto a = quarters<Bf16>(tokens * rows, 1), b = quarters<Bf16>(tokens * cols, 2);
  const DeviceArray<Bf16> d_a(a), d_b(b);
  const DeviceArray<std::uint8_t> workspace(1 << 20);
  for (const bool adds : {false, true}) {
    std::vector<float> expected(rows * cols, 7);
    const DeviceArray<float> c(expected);
    const Outlier outlier;
    kernels::Gemm<Bf16, float> call{.rows = rows,
                                    .cols = cols,
                                    .inner = tokens,
                                    .a = {.data = d_a.data(), .row = rows, .transposed = true},
                                    .b = {.data = d_b.data(), .row = cols},
                                    .c = c.data(),
                                    .adds = adds,
                                    .workspace = workspace.as_bytes(),
                                    .pieces = {.rows = 32, .grid = kWhole}};
    auto planner = GemmPlanner::create({.deterministic = true});
    ASSERT_TRUE(planner) << planner.error().message();
    expect_runs(prepare(*planner, call, nullptr));
    EXPECT_EQ(planner->chosen().size(), 2U);  // 512 rows and 88
    expect_runs(run(*planner, call, nullptr, outlier.place()));
    std::vector<std::byte> scratch(
        static_cast<std::size_t>(kernels::tile_workspace(rows, cols, 32)) * sizeof(float));
    call.a.data = a.data();
    call.b.data = b.data();
    call.c = expected.data();
    call.workspace = scratch;
    GridSums<float> sums(kWhole);
    kernels::exact_weight_gradient(call, sums);
    EXPECT_EQ(c.download(), expected);
    EXPECT_TRUE(outlier.result());
    EXPECT_TRUE(c.margin_is_whole() && workspace.margin_is_whole());
  }
}

TEST(DeviceExact, NormIsAWholeNumberOfSquares) {
  constexpr std::int64_t exponent = -2;
  for (const std::int64_t count : {1, 300000}) {
    const auto values = quarters<float>(count, 4);
    const DeviceArray<float> d_values(values), report(4);
    const DeviceArray<float> loss(std::vector<float>{0, 10, 0.1F, 0});
    const DeviceArray<std::int64_t> partials(1);
    const Outlier outlier;
    expect_runs(exact_norm_partial({.values = {d_values.data(), values.size()},
                                    .exponent = exponent,
                                    .partial = partials.data()},
                                   nullptr, outlier.place()));
    std::optional<float> stray;
    const std::int64_t expected = kernels::exact_sum_of_squares(values, exponent, stray);
    EXPECT_EQ(partials.download().front(), expected);
    expect_runs(norm_finish({.partials = {},
                             .exact_partials = {partials.data(), 1},
                             .exponent = exponent,
                             .loss = loss.data(),
                             .limit = 1,
                             .report = report.data()},
                            nullptr, outlier.place()));
    const NormReport norm =
        kernels::finish_norm(std::span(&expected, 1), exponent, static_cast<double>(0.1F), 1);
    EXPECT_EQ(report.download(),
              (std::vector<float>{norm.norm, norm.clip_factor, norm.non_finite, 0}));
    EXPECT_TRUE(outlier.result());
  }
}

TEST(DeviceExact, AGradientBetweenStepsAndATooLargeNormAreReported) {
  const DeviceArray<float> between(std::vector<float>{1, 0.5F}), loss(4), report(4);
  const DeviceArray<std::int64_t> partial(1);
  const Outlier stray;
  expect_runs(
      exact_norm_partial({.values = {between.data(), 2}, .exponent = 0, .partial = partial.data()},
                         nullptr, stray.place()));
  EXPECT_FALSE(stray.result());
  const DeviceArray<std::int64_t> partials(
      std::vector<std::int64_t>(2, std::numeric_limits<std::int64_t>::max()));
  const Outlier overflow;
  expect_runs(norm_finish({.partials = {},
                           .exact_partials = {partials.data(), 2},
                           .loss = loss.data(),
                           .report = report.data()},
                          nullptr, overflow.place()));
  EXPECT_FALSE(overflow.result());
}

}  // namespace
}  // namespace mfsdp::cuda
