#include "verify/cpu/kernels/rope.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "gpu_backend/cuda/kernels/rope.hpp"
#include "tests/gpu_backend/cuda/device/launch.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::HeadRows;
using kernels::RopeShape;

/// Heads lie at the front of rows of `row` elements.
struct Heads {
  RopeShape shape;
  std::int64_t query_heads;
  std::int64_t row;

  [[nodiscard]] std::int64_t elements() const { return shape.tokens * row; }
  template <class T>
  [[nodiscard]] HeadRows<T> rows(T* data) const {
    return {.data = data, .row = row, .head = shape.head_dim};
  }
};
const std::array<Heads, 5> kHeads{{{{6, 3, 40, 128, 128}, 32, 6144},
                                   {{5, 5, 3, 6, 6}, 2, 19},
                                   {{40, 8, 5, 64, 64}, 4, 400},
                                   {{3, 2, 2, 256, 256}, 1, 512},
                                   {{9, 4, 3, 2, 2}, 2, 6}}};
/// Of which the first elements turn.
const std::array<Heads, 3> kTurnedInPart{
    {{{6, 3, 40, 128, 96}, 32, 6144}, {{5, 5, 3, 6, 2}, 2, 19}, {{40, 8, 5, 64, 32}, 4, 400}}};

std::vector<float> angles(const RopeShape& s) {
  std::vector<float> table;
  for (std::int64_t p = 0; p < s.seq_len; ++p)
    for (std::int64_t i = 0; i < s.turned; ++i) {
      const double angle = static_cast<double>(p) / std::pow(7.0, i % (s.turned / 2));
      table.push_back(static_cast<float>(i < s.turned / 2 ? std::cos(angle) : std::sin(angle)));
    }
  return table;
}

template <class T>
class DeviceRope : public testing::Test {};
using Elements = testing::Types<Bf16, Fp16, float>;
TYPED_TEST_SUITE(DeviceRope, Elements);

TYPED_TEST(DeviceRope, TurnsHeadsBothWays) {
  using T = TypeParam;
  std::vector<Heads> all(kHeads.begin(), kHeads.end());
  all.insert(all.end(), kTurnedInPart.begin(), kTurnedInPart.end());
  for (const Heads& heads : all)
    for (const bool backwards : {false, true}) {
      SCOPED_TRACE(testing::Message() << heads.shape.heads << " of " << heads.shape.head_dim);
      const auto values = random_values<T>(heads.elements(), 1);
      const auto table = angles(heads.shape);
      const DeviceArray<T> data(values);
      const DeviceArray<float> d_table(table);
      expect_runs(rope(kernels::Rope<T>{.shape = heads.shape,
                                        .heads = heads.rows(data.data()),
                                        .table = d_table.data(),
                                        .backwards = backwards},
                       nullptr));
      auto expected = widened(values);
      kernels::rope(heads.shape, heads.rows(expected.data()), table.data(), backwards);
      EXPECT_LT(relative_error(data.download(), expected), kTolerance<T>);
      EXPECT_TRUE(data.margin_is_whole());
    }
}

TYPED_TEST(DeviceRope, NormsHeadsFirst) {
  using T = TypeParam;
  for (const Heads& heads : kHeads) {
    const RopeShape& s = heads.shape;
    SCOPED_TRACE(testing::Message() << s.heads << " of " << s.head_dim);
    const auto values = random_values<T>(heads.elements(), 1, 2);
    const auto query_weight = random_values<T>(s.head_dim, 2);
    const auto key_weight = random_values<T>(s.head_dim, 3);
    const auto gradient = random_values<T>(heads.elements(), 4);
    const auto table = angles(s);
    const std::vector<T> untouched(values.size(), narrow<T>(0));
    const std::int64_t partial_rows = 4;
    const DeviceArray<T> in(values), qw(query_weight), kw(key_weight), out(untouched),
        d_in(gradient);
    const DeviceArray<float> d_table(table), rstd(s.tokens * s.heads),
        partials(2 * partial_rows * s.head_dim);
    expect_runs(qk_norm_rope_forward(
        kernels::QkNormRopeForward<T, float>{.shape = s,
                                             .query_heads = heads.query_heads,
                                             .epsilon = 1e-6F,
                                             .in = heads.rows<const T>(in.data()),
                                             .table = d_table.data(),
                                             .query_weight = qw.data(),
                                             .key_weight = kw.data(),
                                             .out = heads.rows(out.data()),
                                             .rstd = rstd.data()},
        nullptr));
    expect_runs(qk_norm_rope_backward(
        kernels::QkNormRopeBackward<T, float>{.shape = s,
                                              .query_heads = heads.query_heads,
                                              .partial_rows = partial_rows,
                                              .gradient = heads.rows(d_in.data()),
                                              .in = heads.rows<const T>(in.data()),
                                              .table = d_table.data(),
                                              .rstd = rstd.data(),
                                              .query_weight = qw.data(),
                                              .key_weight = kw.data(),
                                              .partials = partials.data()},
        nullptr));
    const auto wide = widened(values), wide_qw = widened(query_weight),
               wide_kw = widened(key_weight);
    std::vector<double> expected(values.size(), 0);
    std::vector<double> wide_rstd(static_cast<std::size_t>(s.tokens * s.heads));
    kernels::qk_norm_rope_forward(
        kernels::QkNormRopeForward<double, float>{.shape = s,
                                                  .query_heads = heads.query_heads,
                                                  .epsilon = 1e-6F,
                                                  .in = heads.rows<const double>(wide.data()),
                                                  .table = table.data(),
                                                  .query_weight = wide_qw.data(),
                                                  .key_weight = wide_kw.data(),
                                                  .out = heads.rows(expected.data()),
                                                  .rstd = wide_rstd.data()});
    auto wide_gradient = widened(gradient);
    std::vector<double> wide_partials(static_cast<std::size_t>(2 * partial_rows * s.head_dim));
    kernels::qk_norm_rope_backward(
        kernels::QkNormRopeBackward<double, float>{.shape = s,
                                                   .query_heads = heads.query_heads,
                                                   .partial_rows = partial_rows,
                                                   .gradient = heads.rows(wide_gradient.data()),
                                                   .in = heads.rows<const double>(wide.data()),
                                                   .table = table.data(),
                                                   .rstd = wide_rstd.data(),
                                                   .query_weight = wide_qw.data(),
                                                   .key_weight = wide_kw.data(),
                                                   .partials = wide_partials.data()});
    EXPECT_LT(relative_error(out.download(), expected), kTolerance<T>);
    EXPECT_LT(relative_error(rstd.download(), wide_rstd), 1e-5);
    EXPECT_LT(relative_error(d_in.download(), wide_gradient), kTolerance<T>);
    EXPECT_LT(relative_error(partials.download(), wide_partials), 1e-5);
    EXPECT_TRUE(out.margin_is_whole() && partials.margin_is_whole());
  }
}

}  // namespace
}  // namespace mfsdp::cuda
