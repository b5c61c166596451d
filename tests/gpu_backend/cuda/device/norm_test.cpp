#include "verify/cpu/kernels/norm.hpp"

#include <gtest/gtest.h>

#include "gpu_backend/cuda/kernels/norm.hpp"
#include "tests/gpu_backend/cuda/device/launch.hpp"
#include "verify/cpu/kernels/layer_norm.hpp"

namespace mfsdp::cuda {
namespace {

struct Rows {
  std::int64_t rows;
  std::int64_t cols;
};
// Packs of every count, rows that end inside a pack, rows longer than a block's registers.
constexpr std::array<Rows, 8> kShapes{
    {{1, 1}, {3, 8}, {5, 1000}, {7, 4097}, {33, 4096}, {4, 8192}, {3, 16384}, {2, 40000}}};

template <class T>
class DeviceNorm : public testing::Test {};
using Elements = testing::Types<Bf16, Fp16, float>;
TYPED_TEST_SUITE(DeviceNorm, Elements);

TYPED_TEST(DeviceNorm, ForwardWithAndWithoutADelta) {
  using T = TypeParam;
  for (const auto [rows, cols] : kShapes)
    for (const bool adds : {false, true}) {
      SCOPED_TRACE(testing::Message() << rows << " x " << cols << " adds " << adds);
      const auto residual = random_values<T>(rows * cols, 1, 3);
      const auto delta = random_values<T>(rows * cols, 2);
      const auto weight = random_values<T>(cols, 3);
      const DeviceArray<T> d_residual(residual), d_delta(delta), d_weight(weight);
      const DeviceArray<T> residual_out(rows * cols), normed(rows * cols);
      const DeviceArray<float> rstd(rows);
      expect_runs(rms_norm_forward(
          kernels::RmsNormForward<T>{.rows = rows,
                                     .cols = cols,
                                     .epsilon = 1e-5F,
                                     .residual = d_residual.data(),
                                     .delta = adds ? d_delta.data() : nullptr,
                                     .weight = d_weight.data(),
                                     .residual_out = adds ? residual_out.data() : nullptr,
                                     .normed = normed.data(),
                                     .rstd = rstd.data()},
          nullptr));
      const auto wide_residual = widened(residual), wide_delta = widened(delta),
                 wide_weight = widened(weight);
      std::vector<double> sum(residual.size()), expected(residual.size());
      std::vector<double> expected_rstd(static_cast<std::size_t>(rows));
      kernels::rms_norm_forward(
          kernels::RmsNormForward<double>{.rows = rows,
                                          .cols = cols,
                                          .epsilon = 1e-5F,
                                          .residual = wide_residual.data(),
                                          .delta = adds ? wide_delta.data() : nullptr,
                                          .weight = wide_weight.data(),
                                          .residual_out = adds ? sum.data() : nullptr,
                                          .normed = expected.data(),
                                          .rstd = expected_rstd.data()});
      EXPECT_LT(relative_error(normed.download(), expected), kTolerance<T>);
      EXPECT_LT(relative_error(rstd.download(), expected_rstd), kTolerance<T>);
      if (adds) {
        EXPECT_LT(relative_error(residual_out.download(), sum), kTolerance<T>);
      }
      EXPECT_TRUE(normed.margin_is_whole() && residual_out.margin_is_whole());
    }
}

TYPED_TEST(DeviceNorm, BackwardMakesTheOutputAgain) {
  using T = TypeParam;
  for (const auto [rows, cols] : kShapes)
    for (const std::int64_t partial_rows : {1, 2, 5})
      for (const bool adds : {false, true}) {
        SCOPED_TRACE(testing::Message()
                     << rows << " x " << cols << " in " << partial_rows << " adds " << adds);
        const auto dy = random_values<T>(rows * cols, 1);
        const auto x = random_values<T>(rows * cols, 2);
        const auto weight = random_values<T>(cols, 3);
        const auto before = random_values<T>(rows * cols, 4);
        std::vector<float> rstd(static_cast<std::size_t>(rows), 0.75F);
        const auto dy_wide = widened(dy), x_wide = widened(x), w_wide = widened(weight),
                   rstd_wide = widened(rstd);
        auto dx_wide = widened(before);
        std::vector<double> again(dy.size());
        std::vector<double> partials_wide(static_cast<std::size_t>(partial_rows * cols));
        kernels::rms_norm_backward(
            kernels::RmsNormBackward<double>{.rows = rows,
                                             .cols = cols,
                                             .partial_rows = partial_rows,
                                             .d_normed = dy_wide.data(),
                                             .input = x_wide.data(),
                                             .rstd = rstd_wide.data(),
                                             .weight = w_wide.data(),
                                             .adds = adds,
                                             .d_residual = dx_wide.data(),
                                             .normed = again.data(),
                                             .partials = partials_wide.data()});
        const DeviceArray<T> d_x(x), d_weight(weight);
        const DeviceArray<float> d_rstd(rstd);
        std::vector<T> first;
        for (int run = 0; run < 2; ++run) {
          const DeviceArray<T> d_dy(dy), d_dx(before);  // normed goes over dy
          const DeviceArray<float> partials(partial_rows * cols);
          expect_runs(rms_norm_backward(kernels::RmsNormBackward<T>{.rows = rows,
                                                                    .cols = cols,
                                                                    .partial_rows = partial_rows,
                                                                    .d_normed = d_dy.data(),
                                                                    .input = d_x.data(),
                                                                    .rstd = d_rstd.data(),
                                                                    .weight = d_weight.data(),
                                                                    .adds = adds,
                                                                    .d_residual = d_dx.data(),
                                                                    .normed = d_dy.data(),
                                                                    .partials = partials.data()},
                                        nullptr));
          EXPECT_LT(relative_error(d_dx.download(), dx_wide), kTolerance<T>);
          EXPECT_LT(relative_error(d_dy.download(), again), kTolerance<T>);
          EXPECT_LT(relative_error(partials.download(), partials_wide), 1e-5);
          EXPECT_TRUE(d_dx.margin_is_whole() && partials.margin_is_whole());
          if (run == 0) first = d_dx.download();
          EXPECT_TRUE(same_bits(d_dx.download(), first));
        }
      }
}

TYPED_TEST(DeviceNorm, AddsToWhatItSkips) {
  using T = TypeParam;
  for (const auto [rows, cols] : kShapes) {
    SCOPED_TRACE(testing::Message() << rows << " x " << cols);
    const auto x = random_values<T>(rows * cols, 1, 3);
    const auto skip = random_values<T>(rows * cols, 2);
    const auto weight = random_values<T>(cols, 3);
    const DeviceArray<T> d_x(x), d_skip(skip), d_weight(weight), normed(rows * cols);
    const DeviceArray<float> rstd(rows);
    expect_runs(rms_norm_forward(kernels::RmsNormForward<T>{.rows = rows,
                                                            .cols = cols,
                                                            .epsilon = 1e-5F,
                                                            .residual = d_x.data(),
                                                            .weight = d_weight.data(),
                                                            .skip = d_skip.data(),
                                                            .normed = normed.data(),
                                                            .rstd = rstd.data()},
                                 nullptr));
    const auto wide_x = widened(x), wide_skip = widened(skip), wide_weight = widened(weight);
    std::vector<double> expected(x.size()), expected_rstd(static_cast<std::size_t>(rows));
    kernels::rms_norm_forward(kernels::RmsNormForward<double>{.rows = rows,
                                                              .cols = cols,
                                                              .epsilon = 1e-5F,
                                                              .residual = wide_x.data(),
                                                              .weight = wide_weight.data(),
                                                              .skip = wide_skip.data(),
                                                              .normed = expected.data(),
                                                              .rstd = expected_rstd.data()});
    EXPECT_LT(relative_error(normed.download(), expected), kTolerance<T>);
    EXPECT_TRUE(normed.margin_is_whole());
  }
}

/// Forward and backward of the same rows.
template <class T>
void check_layer_norm(std::int64_t rows, std::int64_t cols, std::int64_t partial_rows, bool adds) {
  SCOPED_TRACE(testing::Message() << rows << " x " << cols << " in " << partial_rows << " adds "
                                  << adds);
  const auto residual = random_values<T>(rows * cols, 1, 3),
             delta = random_values<T>(rows * cols, 2), weight = random_values<T>(cols, 3),
             bias = random_values<T>(cols, 4), dy = random_values<T>(rows * cols, 5),
             before = random_values<T>(rows * cols, 6);
  const DeviceArray<T> d_residual(residual), d_delta(delta), d_weight(weight), d_bias(bias),
      sum(rows * cols), normed(rows * cols);
  const DeviceArray<float> mean(rows), rstd(rows);
  expect_runs(
      layer_norm_forward(kernels::LayerNormForward<T>{.rows = rows,
                                                      .cols = cols,
                                                      .epsilon = 1e-5F,
                                                      .residual = d_residual.data(),
                                                      .delta = adds ? d_delta.data() : nullptr,
                                                      .weight = d_weight.data(),
                                                      .bias = d_bias.data(),
                                                      .residual_out = adds ? sum.data() : nullptr,
                                                      .normed = normed.data(),
                                                      .mean = mean.data(),
                                                      .rstd = rstd.data()},
                         nullptr));
  const auto wide_residual = widened(residual), wide_delta = widened(delta),
             wide_weight = widened(weight), wide_bias = widened(bias), wide_dy = widened(dy);
  std::vector<double> wide_sum(residual.size()), expected(residual.size());
  std::vector<double> wide_mean(static_cast<std::size_t>(rows)), wide_rstd(wide_mean.size());
  kernels::layer_norm_forward(
      kernels::LayerNormForward<double>{.rows = rows,
                                        .cols = cols,
                                        .epsilon = 1e-5F,
                                        .residual = wide_residual.data(),
                                        .delta = adds ? wide_delta.data() : nullptr,
                                        .weight = wide_weight.data(),
                                        .bias = wide_bias.data(),
                                        .residual_out = adds ? wide_sum.data() : nullptr,
                                        .normed = expected.data(),
                                        .mean = wide_mean.data(),
                                        .rstd = wide_rstd.data()});
  EXPECT_LT(relative_error(normed.download(), expected), kTolerance<T>);
  EXPECT_TRUE(normed.margin_is_whole());

  // Backward of rows as both have them: those that are rounded.
  const std::vector<T> x = adds ? sum.download() : residual;
  const auto x_wide = widened(x), mean_wide = widened(mean.download()),
             rstd_wide = widened(rstd.download());
  auto dx_wide = widened(before);
  std::vector<double> again(dy.size());
  std::vector<double> partials_wide(static_cast<std::size_t>(2 * partial_rows * cols));
  kernels::layer_norm_backward(
      kernels::LayerNormBackward<double>{.rows = rows,
                                         .cols = cols,
                                         .partial_rows = partial_rows,
                                         .d_normed = wide_dy.data(),
                                         .input = x_wide.data(),
                                         .mean = mean_wide.data(),
                                         .rstd = rstd_wide.data(),
                                         .weight = wide_weight.data(),
                                         .bias = wide_bias.data(),
                                         .adds = adds,
                                         .d_residual = dx_wide.data(),
                                         .normed = again.data(),
                                         .partials = partials_wide.data()});
  const DeviceArray<T> d_x(x), d_dy(dy), d_dx(before);  // normed goes over dy
  const DeviceArray<float> partials(2 * partial_rows * cols);
  expect_runs(layer_norm_backward(kernels::LayerNormBackward<T>{.rows = rows,
                                                                .cols = cols,
                                                                .partial_rows = partial_rows,
                                                                .d_normed = d_dy.data(),
                                                                .input = d_x.data(),
                                                                .mean = mean.data(),
                                                                .rstd = rstd.data(),
                                                                .weight = d_weight.data(),
                                                                .bias = d_bias.data(),
                                                                .adds = adds,
                                                                .d_residual = d_dx.data(),
                                                                .normed = d_dy.data(),
                                                                .partials = partials.data()},
                                  nullptr));
  EXPECT_LT(relative_error(d_dx.download(), dx_wide), kTolerance<T>);
  EXPECT_TRUE(same_bits(d_dy.download(), normed.download()));
  EXPECT_LT(relative_error(partials.download(), partials_wide), 2e-5);
  EXPECT_TRUE(d_dx.margin_is_whole() && partials.margin_is_whole());
}

TYPED_TEST(DeviceNorm, LayerNormAgreesWithDoubles) {
  for (const auto [rows, cols] : kShapes)
    if (cols > 1)  // a row of one is all mean
      for (const std::int64_t partial_rows : {1, 2, 5})
        for (const bool adds : {false, true})
          check_layer_norm<TypeParam>(rows, cols, partial_rows, adds);
  check_layer_norm<TypeParam>(300, 768, 256, true);
  check_layer_norm<TypeParam>(300, 1600, 256, true);
}

template <class T, class G>
void check_column_sums(std::int64_t rows, std::int64_t cols, std::int64_t partial_rows) {
  for (const bool adds : {false, true}) {
    SCOPED_TRACE(testing::Message() << rows << " x " << cols << " in " << partial_rows);
    const auto in = random_values<T>(rows * cols, 1);
    const auto before = random_values<G>(cols, 2);
    const DeviceArray<T> d_in(in);
    const DeviceArray<G> out(before);
    const DeviceArray<float> partials(std::max<std::int64_t>(partial_rows, 1) * cols);
    expect_runs(column_sums(
        kernels::ColumnSums<T, G>{.rows = rows,
                                  .cols = cols,
                                  .in = d_in.data(),
                                  .adds = adds,
                                  .out = out.data(),
                                  .partial_rows = partial_rows,
                                  .partials = partial_rows > 0 ? partials.data() : nullptr},
        nullptr));
    auto expected = widened(before);
    const auto wide = widened(in);
    std::vector<double> row(static_cast<std::size_t>(cols));
    kernels::column_sums(rows, cols, wide.data(), row.data(), adds, expected.data());
    EXPECT_LT(relative_error(out.download(), expected), kTolerance<G>);
    EXPECT_TRUE(out.margin_is_whole() && partials.margin_is_whole());
  }
}

TEST(DeviceColumnSums, OfPartialsAndOfGradients) {
  check_column_sums<float, float>(256, 4096, 0);
  check_column_sums<float, Bf16>(3, 33, 0);
  check_column_sums<Bf16, float>(1000, 6144, 256);
  check_column_sums<Bf16, Bf16>(77, 127, 5);
  check_column_sums<float, float>(2, 1, 7);
}

}  // namespace
}  // namespace mfsdp::cuda
