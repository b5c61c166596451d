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
/// RoPE rotates only the first elements of these heads.
const std::array<Heads, 3> kTurnedInPart{
    {{{6, 3, 40, 128, 96}, 32, 6144}, {{5, 5, 3, 6, 2}, 2, 19}, {{40, 8, 5, 64, 32}, 4, 400}}};

/// A position for each token, in an order that no documents have: kernels use positions as given.
std::vector<std::int32_t> some_positions(const RopeShape& s) {
  std::vector<std::int32_t> all;
  for (std::int64_t t = 0; t < s.tokens; ++t)
    all.push_back(static_cast<std::int32_t>(5 * t % s.seq_len));
  return all;
}
RopeShape with(const std::int32_t* positions, RopeShape shape) {
  shape.positions = positions;
  return shape;
}

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
    for (const int which : {0, 1, 2, 3}) {
      const bool backwards = which % 2 == 1;
      SCOPED_TRACE(testing::Message()
                   << heads.shape.heads << " of " << heads.shape.head_dim << ", " << which);
      const auto positions = some_positions(heads.shape);
      const DeviceArray<std::int32_t> d_positions(positions);
      const bool by_document = which >= 2;
      const auto values = random_values<T>(heads.elements(), 1);
      const auto table = angles(heads.shape);
      const DeviceArray<T> data(values);
      const DeviceArray<float> d_table(table);
      expect_runs(rope(
          kernels::Rope<T>{.shape = with(by_document ? d_positions.data() : nullptr, heads.shape),
                           .heads = heads.rows(data.data()),
                           .table = d_table.data(),
                           .backwards = backwards},
          nullptr));
      auto expected = widened(values);
      kernels::rope(with(by_document ? positions.data() : nullptr, heads.shape),
                    heads.rows(expected.data()), table.data(), backwards);
      EXPECT_LT(relative_error(data.download(), expected), kTolerance<T>);
      EXPECT_TRUE(data.margin_is_whole());
    }
}

std::vector<Heads> all_heads() {
  std::vector<Heads> all(kHeads.begin(), kHeads.end());
  all.insert(all.end(), kTurnedInPart.begin(), kTurnedInPart.end());
  return all;
}

TYPED_TEST(DeviceRope, NormsHeadsFirst) {
  using T = TypeParam;
  const std::vector<Heads> kinds = all_heads();
  for (std::size_t which = 0; which < 2 * kinds.size(); ++which) {
    const Heads& heads = kinds.at(which / 2);
    const RopeShape& s = heads.shape;
    const auto positions = some_positions(s);
    const DeviceArray<std::int32_t> d_positions(positions);
    const RopeShape on_device = with(which % 2 == 1 ? d_positions.data() : nullptr, s);
    const RopeShape on_host = with(which % 2 == 1 ? positions.data() : nullptr, s);
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
        kernels::QkNormRopeForward<T, float>{.shape = on_device,
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
        kernels::QkNormRopeBackward<T, float>{.shape = on_device,
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
        kernels::QkNormRopeForward<double, float>{.shape = on_host,
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
        kernels::QkNormRopeBackward<double, float>{.shape = on_host,
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

/// A device's call, or the host's in double.
template <class T>
struct RowNormCalls {
  kernels::QkRowNormRopeForward<T, float> forward;
  kernels::QkRowNormRopeBackward<T, float> backward;

  RowNormCalls(const Heads& heads, std::int64_t partial_rows, const float* table, const T* in,
               const T* query_weight, const T* key_weight, T* out, Real<T>* rstd, T* gradient,
               Real<T>* partials)
      : forward{.shape = heads.shape,
                .query_heads = heads.query_heads,
                .epsilon = 1e-6F,
                .in = heads.rows<const T>(in),
                .table = table,
                .query_weight = query_weight,
                .key_weight = key_weight,
                .out = heads.rows(out),
                .rstd = rstd},
        backward{.shape = heads.shape,
                 .query_heads = heads.query_heads,
                 .partial_rows = partial_rows,
                 .gradient = heads.rows(gradient),
                 .in = heads.rows<const T>(in),
                 .table = table,
                 .rstd = rstd,
                 .query_weight = query_weight,
                 .key_weight = key_weight,
                 .partials = partials} {}
};

/// Norms over all heads of a kind, of more tokens and of fewer than there are rows of partials.
TYPED_TEST(DeviceRope, NormsAllHeadsOfAKindFirst) {
  using T = TypeParam;
  std::vector<Heads> shapes = all_heads();
  // Of 16 bits: two packs a thread backward, four forward.
  shapes.push_back({{10, 5, 72, 128, 128}, 64, 72 * 128});
  // No token lies in registers; its columns do not fit shared memory, but for fp32 of 56 heads.
  shapes.push_back({{9, 3, 200, 128, 128}, 150, 200 * 128});
  shapes.push_back({{6, 3, 56, 128, 128}, 40, 56 * 128});
  for (const Heads& heads : shapes) {
    const RopeShape& s = heads.shape;
    SCOPED_TRACE(testing::Message() << s.heads << " of " << s.head_dim);
    const std::int64_t columns = s.heads * s.head_dim, queries = heads.query_heads * s.head_dim;
    const std::int64_t partial_rows = 4;
    const auto values = random_values<T>(heads.elements(), 1, 2);
    const auto query_weight = random_values<T>(queries, 2);
    const auto key_weight = random_values<T>(columns - queries, 3);
    const auto gradient = random_values<T>(heads.elements(), 4);
    const auto table = angles(s);
    const std::vector<T> untouched(values.size(), narrow<T>(0));
    const DeviceArray<T> in(values), qw(query_weight), kw(key_weight), out(untouched),
        d_in(gradient);
    const DeviceArray<float> d_table(table), rstd(s.tokens * 2), partials(partial_rows * columns);
    const RowNormCalls<T> device(heads, partial_rows, d_table.data(), in.data(), qw.data(),
                                 kw.data(), out.data(), rstd.data(), d_in.data(), partials.data());
    expect_runs(qk_row_norm_rope_forward(device.forward, nullptr));
    expect_runs(qk_row_norm_rope_backward(device.backward, nullptr));
    const auto wide = widened(values), wide_qw = widened(query_weight),
               wide_kw = widened(key_weight);
    std::vector<double> expected(values.size(), 0),
        wide_rstd(static_cast<std::size_t>(s.tokens * 2)),
        wide_partials(static_cast<std::size_t>(partial_rows * columns));
    auto wide_gradient = widened(gradient);
    const RowNormCalls<double> host(heads, partial_rows, table.data(), wide.data(), wide_qw.data(),
                                    wide_kw.data(), expected.data(), wide_rstd.data(),
                                    wide_gradient.data(), wide_partials.data());
    kernels::qk_row_norm_rope_forward(host.forward);
    kernels::qk_row_norm_rope_backward(host.backward);
    EXPECT_LT(relative_error(out.download(), expected), kTolerance<T>);
    EXPECT_LT(relative_error(rstd.download(), wide_rstd), 1e-5);
    EXPECT_LT(relative_error(d_in.download(), wide_gradient), kTolerance<T>);
    EXPECT_LT(relative_error(partials.download(), wide_partials), 1e-5);
    EXPECT_TRUE(out.margin_is_whole() && partials.margin_is_whole());
  }
}

}  // namespace
}  // namespace mfsdp::cuda
