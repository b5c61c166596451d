// Grouped GEMMs of experts, each version by itself:
//   --gtest_filter='*DeviceGrouped*plain', '*warps', '*warpgroups'
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <numeric>

#include "gpu_backend/cuda/grouped_products.hpp"
#include "tests/gpu_backend/cuda/device/launch.hpp"
#include "tests/gpu_backend/cuda/device/wrong_elements.hpp"
#include "verify/cpu/kernels/exact.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::GroupedProduct;
using kernels::GroupedSizes;
using kernels::GroupedWeightGradient;

struct Shape {
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::vector<std::int64_t> rows;  ///< of each expert

  [[nodiscard]] std::int64_t experts() const { return static_cast<std::int64_t>(rows.size()); }
  [[nodiscard]] std::int64_t total() const {
    return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
  }
  [[nodiscard]] std::vector<std::int32_t> ends() const {
    std::vector<std::int32_t> made;
    std::int32_t end = 0;
    for (const std::int64_t count : rows) made.push_back(end += static_cast<std::int32_t>(count));
    return made;
  }
  /// Five rows more than the experts have; these must not be touched.
  [[nodiscard]] GroupedSizes sizes() const {
    return {.experts = experts(), .m = total() + 5, .n = n, .k = k};
  }
  [[nodiscard]] std::string name() const {
    std::string list;
    for (std::size_t e = 0; e < rows.size() && e < 6; ++e) list += fmt::format(" {}", rows[e]);
    return fmt::format("n {} k {}, {} experts with rows{}", n, k, rows.size(), list);
  }
};

std::vector<std::int64_t> many_experts() {
  std::mt19937 bits(5);
  std::vector<std::int64_t> rows;
  for (int e = 0; e < 70; ++e) rows.push_back(e % 7 == 3 ? 0 : bits() % 60);
  return rows;
}

/// From one whole tile on to what is ragged in every direction.
std::vector<Shape> shapes() {
  return {{128, 64, {128}},           {256, 64, {128}},         {256, 128, {128}},
          {256, 512, {256}},          {512, 256, {64}},         {192, 320, {100, 0, 1, 77}},
          {520, 200, {129, 300, 64}}, {64, 72, many_experts()}, {8, 8, {3, 5}},
          {256, 64, {0, 0, 40, 0}}};
}

class DeviceGrouped : public testing::TestWithParam<GroupedVersion> {
 protected:
  [[nodiscard]] std::vector<Shape> own_shapes() const {
    std::vector<Shape> all = shapes();
    if (GetParam() == GroupedVersion::plain) {
      all.push_back({33, 7, {5, 0, 90}});
      all.push_back({1, 1, {1}});
    }
    return all;
  }
  template <class T>
  [[nodiscard]] bool takes() const {
    return GetParam() == GroupedVersion::plain || sizeof(T) == 2;
  }
};

std::string version_name(GroupedVersion version) {
  switch (version) {
    case GroupedVersion::plain: return "plain";
    case GroupedVersion::warps: return "warps";
    case GroupedVersion::warpgroups: break;
  }
  return "warpgroups";
}

void expect_launch(const Result<Launch>& launch) {
  ASSERT_TRUE(launch) << launch.error().message();
  if (*launch) expect_runs((*launch)());
}

// ---- references, in fp64 -----------------------------------------------------------------------

/// A sum of terms a * b, and the sum of their magnitudes.
struct Sum {
  double value = 0;
  double size = 0;
  void add(double product) {
    value += product;
    size += std::abs(product);
  }
};

template <class T>
Expected product_of(const Shape& s, bool gradient, const std::vector<T>& input,
                    const std::vector<T>& weight) {
  const std::vector<double> in = widened(input);
  const std::vector<double> w = widened(weight);
  const std::int64_t from = gradient ? s.n : s.k;
  const std::int64_t to = gradient ? s.k : s.n;
  Expected made;
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < s.experts(); ++e)
    for (std::int64_t r = 0; r < s.rows[static_cast<std::size_t>(e)]; ++r, ++row)
      for (std::int64_t c = 0; c < to; ++c) {
        Sum sum;
        const double* const own = w.data() + e * s.n * s.k;
        for (std::int64_t i = 0; i < from; ++i)
          sum.add(in[static_cast<std::size_t>(row * from + i)] *
                  (gradient ? own[i * s.k + c] : own[c * s.k + i]));
        made.values.push_back(sum.value);
        made.bounds.push_back(rounding_bound<T>(sum.value, sum.size));
      }
  return made;
}

template <class T, class G>
Expected gradient_of(const Shape& s, const std::vector<T>& d_output, const std::vector<T>& input,
                     const std::vector<G>& before) {
  const std::vector<double> d = widened(d_output);
  const std::vector<double> in = widened(input);
  Expected made;
  std::int64_t begin = 0;
  for (std::int64_t e = 0; e < s.experts(); ++e) {
    const std::int64_t end = begin + s.rows[static_cast<std::size_t>(e)];
    for (std::int64_t i = 0; i < s.n; ++i)
      for (std::int64_t j = 0; j < s.k; ++j) {
        Sum sum;
        if (!before.empty()) sum.add(widen(before[made.values.size()]));
        for (std::int64_t r = begin; r < end; ++r)
          sum.add(d[static_cast<std::size_t>(r * s.n + i)] *
                  in[static_cast<std::size_t>(r * s.k + j)]);
        made.values.push_back(sum.value);
        made.bounds.push_back(rounding_bound<G>(sum.value, sum.size));
      }
    begin = end;
  }
  return made;
}

// ---- against them ------------------------------------------------------------------------------

template <class T>
void check_product(const Shape& s, bool gradient, GroupedVersion version) {
  SCOPED_TRACE(fmt::format("{} of {}, {}, {}", gradient ? "input gradient" : "product",
                           to_string(dtype_of<T>), version_name(version), s.name()));
  const std::int64_t from = gradient ? s.n : s.k;
  const std::int64_t to = gradient ? s.k : s.n;
  const auto input = random_values<T>(s.total() * from, 1);
  const auto weight = random_values<T>(s.experts() * s.n * s.k, 2, 0.25F);
  const DeviceArray<T> d_input(s.sizes().m * from), d_weight(weight), output(s.sizes().m * to);
  d_input.upload(input);
  const DeviceArray<std::int32_t> ends(s.ends());
  expect_launch(grouped_launch(GroupedProduct<T>{.sizes = s.sizes(),
                                                 .gradient = gradient,
                                                 .input = d_input.data(),
                                                 .weight = d_weight.data(),
                                                 .ends = ends.data(),
                                                 .output = output.data()},
                               nullptr, version));
  const std::vector<T> got = output.download();
  EXPECT_TRUE(all_right(got, product_of(s, gradient, input, weight), to));
  EXPECT_TRUE(is_poison_from(got, s.total() * to)) << "rows behind the last expert's";
  EXPECT_TRUE(output.margin_is_whole());
}

template <class T, class G>
void check_gradient(const Shape& s, bool adds, GroupedVersion version) {
  SCOPED_TRACE(fmt::format("weight gradient of {} to {}{}, {}, {}", to_string(dtype_of<T>),
                           to_string(dtype_of<G>), adds ? ", added" : "", version_name(version),
                           s.name()));
  const auto d_output = random_values<T>(s.total() * s.n, 1, 0.25F);
  const auto input = random_values<T>(s.total() * s.k, 2);
  const auto before = adds ? random_values<G>(s.experts() * s.n * s.k, 3, 4) : std::vector<G>{};
  const DeviceArray<T> d_d_output(s.sizes().m * s.n), d_input(s.sizes().m * s.k);
  d_d_output.upload(d_output);
  d_input.upload(input);
  const DeviceArray<G> weight_grad(s.experts() * s.n * s.k);
  if (adds) weight_grad.upload(before);
  const DeviceArray<std::int32_t> ends(s.ends());
  expect_launch(grouped_launch(GroupedWeightGradient<T, G>{.sizes = s.sizes(),
                                                           .d_output = d_d_output.data(),
                                                           .input = d_input.data(),
                                                           .ends = ends.data(),
                                                           .adds = adds,
                                                           .weight_grad = weight_grad.data()},
                               nullptr, nullptr, version));
  EXPECT_TRUE(
      all_right(weight_grad.download(), gradient_of<T, G>(s, d_output, input, before), s.k));
  EXPECT_TRUE(weight_grad.margin_is_whole());
}

template <class T>
void check_products(const std::vector<Shape>& all, bool gradient, GroupedVersion version) {
  for (const Shape& s : all) check_product<T>(s, gradient, version);
}
template <class T, class G>
void check_gradients(const std::vector<Shape>& all, GroupedVersion version) {
  for (const Shape& s : all)
    for (const bool adds : {false, true}) check_gradient<T, G>(s, adds, version);
}

TEST_P(DeviceGrouped, ProductOfBf16) { check_products<Bf16>(own_shapes(), false, GetParam()); }
TEST_P(DeviceGrouped, ProductOfFp16) {
  if (takes<Fp16>()) check_products<Fp16>(own_shapes(), false, GetParam());
}
TEST_P(DeviceGrouped, ProductOfFp32) {
  if (takes<float>()) check_products<float>(own_shapes(), false, GetParam());
}
TEST_P(DeviceGrouped, InputGradientOfBf16) { check_products<Bf16>(own_shapes(), true, GetParam()); }
TEST_P(DeviceGrouped, InputGradientOfFp16) {
  if (takes<Fp16>()) check_products<Fp16>(own_shapes(), true, GetParam());
}
TEST_P(DeviceGrouped, InputGradientOfFp32) {
  if (takes<float>()) check_products<float>(own_shapes(), true, GetParam());
}
TEST_P(DeviceGrouped, WeightGradientOfBf16) {
  check_gradients<Bf16, float>(own_shapes(), GetParam());
  check_gradients<Bf16, Bf16>(own_shapes(), GetParam());
}
TEST_P(DeviceGrouped, WeightGradientOfFp16) {
  if (!takes<Fp16>()) return;
  check_gradients<Fp16, float>(own_shapes(), GetParam());
  check_gradients<Fp16, Fp16>(own_shapes(), GetParam());
}
TEST_P(DeviceGrouped, WeightGradientOfFp32) {
  if (!takes<float>()) return;
  check_gradients<float, float>(own_shapes(), GetParam());
  check_gradients<float, Bf16>(own_shapes(), GetParam());
}

// ---- what a row depends on ---------------------------------------------------------------------

std::vector<Bf16> rows_of_product(const Shape& s, bool gradient, const std::vector<Bf16>& input,
                                  const std::vector<Bf16>& weight, GroupedVersion version) {
  const DeviceArray<Bf16> d_input(input), d_weight(weight),
      output(s.total() * (gradient ? s.k : s.n));
  const DeviceArray<std::int32_t> ends(s.ends());
  GroupedSizes sizes = s.sizes();
  sizes.m = s.total();
  expect_launch(grouped_launch(GroupedProduct<Bf16>{.sizes = sizes,
                                                    .gradient = gradient,
                                                    .input = d_input.data(),
                                                    .weight = d_weight.data(),
                                                    .ends = ends.data(),
                                                    .output = output.data()},
                               nullptr, version));
  return output.download();
}

/// Rows 37 to 299 of an expert by themselves have the bits that they have among 300.
TEST_P(DeviceGrouped, BitsOfARowAreItsOwn) {
  for (const bool gradient : {false, true}) {
    SCOPED_TRACE(gradient);
    constexpr std::int64_t n = 264;
    constexpr std::int64_t k = 392;
    const std::int64_t from = gradient ? n : k;
    const std::int64_t to = gradient ? k : n;
    const auto input = random_values<Bf16>(300 * from, 1);
    const auto weight = random_values<Bf16>(n * k, 2);
    const auto all = rows_of_product({n, k, {300}}, gradient, input, weight, GetParam());
    const std::vector<Bf16> some_input(input.begin() + 37 * from, input.end());
    const auto some = rows_of_product({n, k, {263}}, gradient, some_input, weight, GetParam());
    EXPECT_TRUE(same_bits(some, {all.begin() + 37 * to, all.end()}));
  }
}

// ---- many tiles of a block, against the plain version ------------------------------------------

template <class T>
double largest_difference(const std::vector<T>& a, const std::vector<T>& b) {
  double most = 0;
  double size = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(widen(a[i])) - widen(b[i]));
    most = difference <= most ? most : difference;  // NaN stays
    size = std::max(size, std::abs(static_cast<double>(widen(b[i]))));
  }
  return most / size;
}

TEST_P(DeviceGrouped, LargeOnesAgreeWithThePlainVersion) {
  if (GetParam() == GroupedVersion::plain) return;
  const Shape s{1536, 1024, {600, 0, 2500, 17, 128, 1000, 3, 1100}};
  const auto input = random_values<Bf16>(s.total() * s.k, 1);
  const auto d_output = random_values<Bf16>(s.total() * s.n, 2);
  const auto weight = random_values<Bf16>(s.experts() * s.n * s.k, 3, 0.25F);
  for (const bool gradient : {false, true}) {
    const auto& from = gradient ? d_output : input;
    const auto right = rows_of_product(s, gradient, from, weight, GroupedVersion::plain);
    EXPECT_LT(largest_difference(rows_of_product(s, gradient, from, weight, GetParam()), right),
              1e-2)
        << (gradient ? "input gradient" : "product");
  }
  const DeviceArray<Bf16> d_input(input), d_d_output(d_output);
  const DeviceArray<std::int32_t> ends(s.ends());
  const auto gradient_by = [&](GroupedVersion version) {
    const DeviceArray<float> weight_grad(s.experts() * s.n * s.k);
    GroupedSizes sizes = s.sizes();
    sizes.m = s.total();
    expect_launch(
        grouped_launch(GroupedWeightGradient<Bf16, float>{.sizes = sizes,
                                                          .d_output = d_d_output.data(),
                                                          .input = d_input.data(),
                                                          .ends = ends.data(),
                                                          .weight_grad = weight_grad.data()},
                       nullptr, nullptr, version));
    return weight_grad.download();
  };
  EXPECT_LT(largest_difference(gradient_by(GetParam()), gradient_by(GroupedVersion::plain)), 1e-4)
      << "weight gradient";
}

INSTANTIATE_TEST_SUITE_P(Versions, DeviceGrouped,
                         testing::Values(GroupedVersion::plain, GroupedVersion::warps,
                                         GroupedVersion::warpgroups),
                         [](const auto& of) { return version_name(of.param); });

// ---- --exact-sums ------------------------------------------------------------------------------

/// Terms a * b of multiples of 1/4, each rounded to an integer.
template <class T>
void check_exact_gradient(bool adds) {
  const Shape s{40, 24, {5, 0, 33}};
  std::mt19937 bits(1);
  const auto quarters = [&bits](std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    for (T& value : values) value = narrow<T>(static_cast<float>(bits() % 17) / 4 - 2);
    return values;
  };
  const auto d_output = quarters(s.sizes().m * s.n);
  const auto input = quarters(s.sizes().m * s.k);
  const kernels::GradientGrid grid{.exponent = 0, .limit = 1 << 20};
  kernels::GridSums<float> sums(grid);
  std::vector<float> expected(static_cast<std::size_t>(s.experts() * s.n * s.k), adds ? 3 : 0);
  const DeviceArray<float> weight_grad(static_cast<std::int64_t>(expected.size()));
  if (adds) weight_grad.upload(expected);
  std::int64_t row = 0;
  for (std::int64_t e = 0; e < s.experts(); ++e)
    for (std::int64_t r = 0; r < s.rows[static_cast<std::size_t>(e)]; ++r, ++row)
      for (std::int64_t i = 0; i < s.n; ++i)
        for (std::int64_t j = 0; j < s.k; ++j) {
          const float product = widen(d_output[static_cast<std::size_t>(row * s.n + i)]) *
                                widen(input[static_cast<std::size_t>(row * s.k + j)]);
          sums.add(std::span(&product, 1), true, expected.data() + (e * s.n + i) * s.k + j);
        }
  const DeviceArray<T> d_d_output(d_output), d_input(input);
  const DeviceArray<std::int32_t> ends(s.ends());
  const DeviceArray<ExactOutlier> outlier(std::vector<ExactOutlier>(1));
  expect_launch(grouped_launch(GroupedWeightGradient<T, float>{.sizes = s.sizes(),
                                                               .d_output = d_d_output.data(),
                                                               .input = d_input.data(),
                                                               .ends = ends.data(),
                                                               .adds = adds,
                                                               .weight_grad = weight_grad.data(),
                                                               .pieces = {.rows = 1, .grid = grid}},
                               nullptr, outlier.data()));
  EXPECT_EQ(weight_grad.download(), expected);
  EXPECT_TRUE(check_exact(outlier.download().front()));
}

TEST(DeviceGroupedExact, EveryRowIsAPiece) {
  for (const bool adds : {false, true}) {
    check_exact_gradient<Bf16>(adds);
    check_exact_gradient<Fp16>(adds);
    check_exact_gradient<float>(adds);
  }
}

}  // namespace
}  // namespace mfsdp::cuda
