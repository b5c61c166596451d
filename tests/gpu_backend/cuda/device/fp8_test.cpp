#include "gpu_backend/cuda/kernels/fp8.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <limits>
#include <vector>

#include "gpu_backend/cuda/kernels/norm.hpp"
#include "gpu_backend/cuda/kernels/swiglu.hpp"
#include "tests/gpu_backend/cuda/device/launch.hpp"
#include "verify/cpu/kernels/fp8.hpp"

namespace mfsdp::cuda {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct MatrixSize {
  std::int64_t rows, cols;
};

/// The rule of fp8.hpp, on the host.
template <class F>
float expected_factor(float amax) {
  if (!(amax > 0) || amax == kInfinity) return 1;
  const float factor = fp8_max<F> / amax;
  return factor == kInfinity ? FLT_MAX : factor;
}

template <class T, class F>
std::vector<F> expected_codes(const std::vector<T>& values, float amax) {
  const float factor = expected_factor<F>(amax);
  std::vector<F> codes;
  for (const T value : values) codes.push_back(narrow<F>(widen(value) * factor));
  return codes;
}

template <class F>
std::vector<F> expected_transpose(const std::vector<F>& values, MatrixSize size) {
  std::vector<F> to(values.size());
  for (std::int64_t i = 0; i < size.rows; ++i)
    for (std::int64_t j = 0; j < size.cols; ++j)
      to[static_cast<std::size_t>(j * size.rows + i)] =
          values[static_cast<std::size_t>(i * size.cols + j)];
  return to;
}

template <class T>
float expected_amax(const std::vector<T>& values) {
  float most = 0;
  for (const T value : values) {
    if (std::isnan(widen(value))) return kNan;
    most = std::max(most, std::abs(widen(value)));
  }
  return most;
}

/// The bytes of any array; the type only matters if it is an FP8 one.
template <class F>
TypedBytes<AnyFp8> elements_of(const DeviceArray<F>& array) {
  return {reinterpret_cast<AnyFp8*>(array.data()), is_fp8_type<F> ? dtype_of<F> : DType::fp8_e4m3};
}

/// Casts in all three ways and compares with the CPU's codes.
template <class T, class F>
void expect_cast(const std::vector<T>& values, MatrixSize size, float amax) {
  const DeviceArray<T> input(values);
  const DeviceArray<float> of(std::vector<float>{amax});
  const auto codes = expected_codes<T, F>(values, amax);
  const auto transposed = expected_transpose(codes, size);
  for (const int copies : {1, 2, 3}) {  // stored, transposed, both
    SCOPED_TRACE(copies);
    const auto count = static_cast<std::int64_t>(values.size());
    const DeviceArray<F> output(count), output_t(count);
    const DeviceArray<float> scale(1), next(std::vector<float>{0});
    expect_runs(cast_scaled(
        kernels::CastScaled<T>{
            .rows = size.rows,
            .cols = size.cols,
            .input = input.data(),
            .amax = of.data(),
            .output = (copies & 1) != 0 ? elements_of(output) : TypedBytes<AnyFp8>{},
            .output_t = (copies & 2) != 0 ? elements_of(output_t) : TypedBytes<AnyFp8>{},
            .output_scale = scale.data(),
            .next_amax = next.data()},
        nullptr));
    EXPECT_TRUE((copies & 1) == 0 || same_bits(output.download(), codes));
    EXPECT_TRUE((copies & 2) == 0 || same_bits(output_t.download(), transposed));
    EXPECT_TRUE(output.margin_is_whole() && output_t.margin_is_whole());
    EXPECT_EQ(scale.download()[0], 1 / expected_factor<F>(amax));
    const float largest = expected_amax(values);
    if (std::isnan(largest))
      EXPECT_TRUE(std::isnan(next.download()[0]));
    else
      EXPECT_EQ(next.download()[0], largest);
  }
}

template <class F>
class DeviceFp8 : public testing::Test {};
using Formats = testing::Types<Fp8E4m3, Fp8E5m2>;
TYPED_TEST_SUITE(DeviceFp8, Formats);

TYPED_TEST(DeviceFp8, EveryBf16NumberBecomesTheCpusCode) {
  std::vector<Bf16> all;
  for (std::uint32_t bits = 0; bits < 65536; ++bits)
    all.push_back({static_cast<std::uint16_t>(bits)});
  for (const float amax :
       {1.0F, 448.0F, 57344.0F, 0.02F, 3.3F, 0.0F, 1e-38F, 1e-45F, FLT_MAX, kInfinity, kNan}) {
    SCOPED_TRACE(amax);
    expect_cast<Bf16, TypeParam>(all, {256, 256}, amax);
  }
}

TYPED_TEST(DeviceFp8, CastsEveryShapeAndType) {
  for (const MatrixSize size :
       {MatrixSize{16, 16}, {48, 80}, {128, 128}, {272, 400}, {1040, 1168}, {16, 4096}}) {
    SCOPED_TRACE(testing::Message() << size.rows << " x " << size.cols);
    const std::int64_t count = size.rows * size.cols;
    auto small = random_values<Bf16>(count, 3, 0.005F);
    small[7] = {};
    expect_cast<Bf16, TypeParam>(small, size, expected_amax(small));
    small[count - 1] = narrow<Bf16>(kNan);
    small[5] = narrow<Bf16>(-kInfinity);
    expect_cast<Bf16, TypeParam>(small, size, 0.02F);
    expect_cast<Fp16, TypeParam>(random_values<Fp16>(count, 4), size, 4);
    expect_cast<float, TypeParam>(random_values<float>(count, 5), size, 4);
  }
}

TYPED_TEST(DeviceFp8, CastsAShardOfAnyLengthAndPlace) {
  const auto values = random_values<float>(10'007, 6);
  const DeviceArray<float> input(values);
  const DeviceArray<float> amax(std::vector<float>{5});
  for (const std::int64_t first : {0, 1, 4}) {
    const std::int64_t count = 10'007 - first;
    const DeviceArray<TypeParam> output(count);
    const DeviceArray<float> scale(1);
    expect_runs(cast_scaled(kernels::CastScaled<float>{.rows = 1,
                                                       .cols = count,
                                                       .input = input.data() + first,
                                                       .amax = amax.data(),
                                                       .output = elements_of(output),
                                                       .output_scale = scale.data()},
                            nullptr));
    EXPECT_TRUE(same_bits(output.download(), expected_codes<float, TypeParam>(
                                                 {values.begin() + first, values.end()}, 5)));
    EXPECT_TRUE(output.margin_is_whole());
  }
}

/// Main weights that are cast by way of bf16 have the codes of weights in bf16.
TYPED_TEST(DeviceFp8, CastsThroughBf16) {
  const auto values = random_values<float>(10'007, 8, 0.02F);
  std::vector<Bf16> rounded;
  for (const float value : values) rounded.push_back(narrow<Bf16>(value));
  const DeviceArray<float> input(values);
  const DeviceArray<float> amax(std::vector<float>{expected_amax(values)});
  for (const std::int64_t count : {10'000, 10'007}) {
    const DeviceArray<TypeParam> output(count);
    const DeviceArray<float> scale(1);
    expect_runs(cast_scaled(kernels::CastScaled<float>{.rows = 1,
                                                       .cols = count,
                                                       .input = input.data(),
                                                       .amax = amax.data(),
                                                       .output = elements_of(output),
                                                       .output_scale = scale.data(),
                                                       .through_bf16 = true},
                            nullptr));
    const float largest = expected_amax(rounded);
    EXPECT_TRUE(same_bits(
        output.download(),
        expected_codes<Bf16, TypeParam>({rounded.begin(), rounded.begin() + count}, largest)));
    EXPECT_EQ(scale.download()[0], 1 / expected_factor<TypeParam>(largest));
  }
}

template <class T>
class DeviceAmax : public testing::Test {};
using AmaxElements = testing::Types<Bf16, Fp16, float>;
TYPED_TEST_SUITE(DeviceAmax, AmaxElements);

template <class T>
float amax_of(const std::vector<T>& values, std::int64_t first, bool adds, float before) {
  const DeviceArray<T> input(values);
  const DeviceArray<float> result(std::vector<float>{before});
  expect_runs(amax(kernels::Amax<T>{.rows = 1,
                                    .cols = static_cast<std::int64_t>(values.size()) - first,
                                    .input = input.data() + first,
                                    .adds = adds,
                                    .amax = result.data()},
                   nullptr));
  return result.download()[0];
}

TYPED_TEST(DeviceAmax, FindsTheLargestWhereverItIs) {
  for (const std::int64_t count : {1, 7, 8, 1000, 100'003, 3'000'000}) {
    SCOPED_TRACE(count);
    auto values = random_values<TypeParam>(count, 1);
    for (const std::int64_t place : {std::int64_t{0}, count / 2, count - 1}) {
      const TypeParam before = std::exchange(values[place], narrow<TypeParam>(-100));
      EXPECT_EQ(amax_of(values, 0, false, 1e9F), 100);
      values[place] = before;
    }
    EXPECT_EQ(amax_of(values, 1, false, 0),
              expected_amax(std::vector(values.begin() + 1, values.end())));
    EXPECT_EQ(amax_of(values, 0, true, 1e9F), 1e9F);
    EXPECT_EQ(amax_of(values, 0, true, 0), expected_amax(values));
    values[count / 3] = narrow<TypeParam>(-kInfinity);
    EXPECT_EQ(amax_of(values, 0, false, 0), kInfinity);
    values[count - 1] = narrow<TypeParam>(kNan);
    EXPECT_TRUE(std::isnan(amax_of(values, 0, false, 0)));
    EXPECT_TRUE(std::isnan(amax_of(values, 0, true, 5)));
  }
  EXPECT_EQ(amax_of(std::vector<TypeParam>(999, TypeParam{}), 0, false, 3), 0);
}

TEST(DeviceTranspose, MovesEveryByte) {
  for (const MatrixSize size :
       {MatrixSize{16, 16}, {16, 4096}, {4096, 16}, {272, 400}, {1024, 768}}) {
    SCOPED_TRACE(testing::Message() << size.rows << " x " << size.cols);
    const std::int64_t count = size.rows * size.cols;
    std::vector<std::uint8_t> values;
    for (std::int64_t i = 0; i < count; ++i)
      values.push_back(static_cast<std::uint8_t>((i * 2654435761LL) >> 13));
    const DeviceArray<std::uint8_t> input(values), output(count);
    expect_runs(transpose({.rows = size.rows,
                           .cols = size.cols,
                           .input = {reinterpret_cast<const AnyFp8*>(input.data())},
                           .output = elements_of(output)},
                          nullptr));
    EXPECT_TRUE(same_bits(output.download(), expected_transpose(values, size)));
    EXPECT_TRUE(output.margin_is_whole());
  }
}

/// Compares with what a producer stored.
template <class T>
void expect_amax_of(const DeviceArray<T>& stored, const DeviceArray<float>& amax) {
  EXPECT_EQ(amax.download()[0], expected_amax(stored.download()));
}

TYPED_TEST(DeviceAmax, OfANormIsOfWhatItStores) {
  using T = TypeParam;
  for (const MatrixSize size : {MatrixSize{3, 8}, {700, 4096}, {5, 333}, {9, 16384}}) {
    const DeviceArray<T> x(random_values<T>(size.rows * size.cols, 1)),
        normed(size.rows * size.cols);
    const DeviceArray<T> weight(random_values<T>(size.cols, 2));
    const DeviceArray<float> rstd(size.rows), amax(std::vector<float>{9});
    expect_runs(rms_norm_forward(kernels::RmsNormForward<T>{.rows = size.rows,
                                                            .cols = size.cols,
                                                            .epsilon = 1e-5F,
                                                            .residual = x.data(),
                                                            .weight = weight.data(),
                                                            .normed = normed.data(),
                                                            .rstd = rstd.data(),
                                                            .amax = amax.data()},
                                 nullptr));
    expect_amax_of(normed, amax);
  }
}

TYPED_TEST(DeviceAmax, OfANormsBackwardIsOfTheGradientItStores) {
  using T = TypeParam;
  for (const MatrixSize size : {MatrixSize{3, 8}, {700, 4096}, {5, 333}, {40, 512}, {9, 16384}}) {
    const std::int64_t count = size.rows * size.cols;
    const std::int64_t partial_rows = std::min<std::int64_t>(size.rows, 256);
    const DeviceArray<T> x(random_values<T>(count, 1)), d_normed(random_values<T>(count, 2));
    const DeviceArray<T> weight(random_values<T>(size.cols, 3)),
        d_residual(random_values<T>(count, 4));
    const DeviceArray<float> rstd(random_values<float>(size.rows, 5));
    const DeviceArray<float> partials(partial_rows * size.cols), amax(std::vector<float>{9});
    expect_runs(rms_norm_backward(kernels::RmsNormBackward<T>{.rows = size.rows,
                                                              .cols = size.cols,
                                                              .partial_rows = partial_rows,
                                                              .d_normed = d_normed.data(),
                                                              .input = x.data(),
                                                              .rstd = rstd.data(),
                                                              .weight = weight.data(),
                                                              .adds = true,
                                                              .d_residual = d_residual.data(),
                                                              .partials = partials.data(),
                                                              .amax = amax.data()},
                                  nullptr));
    expect_amax_of(d_residual, amax);
  }
}

TYPED_TEST(DeviceAmax, OfSwigluIsOfWhatItStores) {
  using T = TypeParam;
  for (const MatrixSize size : {MatrixSize{3, 8}, {700, 4096}, {5, 333}}) {
    const std::int64_t count = size.rows * size.cols;
    const DeviceArray<T> gate_up(random_values<T>(2 * count, 1)), product(count);
    const DeviceArray<T> d(random_values<T>(count, 2));
    const DeviceArray<float> amax(std::vector<float>{1e9F}), d_amax(std::vector<float>{1e9F});
    expect_runs(swiglu_forward(kernels::SwigluForward<T>{.rows = size.rows,
                                                         .cols = size.cols,
                                                         .gate_up = gate_up.data(),
                                                         .product = product.data(),
                                                         .amax = amax.data()},
                               nullptr));
    expect_amax_of(product, amax);
    expect_runs(swiglu_backward(kernels::SwigluBackward<T>{.rows = size.rows,
                                                           .cols = size.cols,
                                                           .gate_up = gate_up.data(),
                                                           .d_product = d.data(),
                                                           .amax = d_amax.data()},
                                nullptr));
    expect_amax_of(gate_up, d_amax);
  }
}

TYPED_TEST(DeviceFp8, SwigluInOnePassGivesTheCodesOfTwo) {
  using F = TypeParam;
  for (const MatrixSize size : {MatrixSize{16, 16}, {144, 272}, {256, 1024}}) {
    SCOPED_TRACE(testing::Message() << size.rows << " x " << size.cols);
    const std::int64_t count = size.rows * size.cols;
    const DeviceArray<Bf16> gate_up(random_values<Bf16>(2 * count, 1, 2)), product(count);
    const DeviceArray<Bf16> d(random_values<Bf16>(count, 2, 0.01F));
    const DeviceArray<float> amax(std::vector<float>{1.5F});
    const auto check = [&](std::int64_t cols, const DeviceArray<Bf16>& stored,
                           const auto& one_pass) {
      const std::int64_t all = size.rows * cols;
      const auto codes = expected_codes<Bf16, F>(stored.download(), 1.5F);
      const DeviceArray<F> output(all), output_t(all);
      const DeviceArray<float> scale(1), next(std::vector<float>{0});
      expect_runs(one_pass(
          CastTargets<F>{amax.data(), output.data(), output_t.data(), scale.data(), next.data()}));
      EXPECT_TRUE(same_bits(output.download(), codes));
      EXPECT_TRUE(same_bits(output_t.download(), expected_transpose(codes, {size.rows, cols})));
      EXPECT_TRUE(output.margin_is_whole() && output_t.margin_is_whole());
      EXPECT_EQ(scale.download()[0], 1 / expected_factor<F>(1.5F));
      expect_amax_of(stored, next);
    };
    expect_runs(swiglu_forward(kernels::SwigluForward<Bf16>{.rows = size.rows,
                                                            .cols = size.cols,
                                                            .gate_up = gate_up.data(),
                                                            .product = product.data()},
                               nullptr));
    check(size.cols, product, [&](const CastTargets<F>& to) {
      return swiglu_forward_cast(size.rows, size.cols, gate_up.data(), to, nullptr);
    });
    const DeviceArray<Bf16> in_place(gate_up.download());
    expect_runs(swiglu_backward(kernels::SwigluBackward<Bf16>{.rows = size.rows,
                                                              .cols = size.cols,
                                                              .gate_up = in_place.data(),
                                                              .d_product = d.data()},
                                nullptr));
    check(2 * size.cols, in_place, [&](const CastTargets<F>& to) {
      return swiglu_backward_cast(size.rows, size.cols, gate_up.data(), d.data(), to, nullptr);
    });
  }
}

/// Histories longer and shorter than what a thread reads at once; some tensors cast nothing, and some
/// have no finite magnitude.
TEST(Fp8Kernels, HistoriesAreThoseOfTheCpu) {
  constexpr std::int64_t kTensors = 77;
  for (const std::int64_t slots : {1, 2, 16, 17, 1024})
    for (const bool recent : {false, true}) {
      SCOPED_TRACE(slots);
      std::vector<float> next, amax, history;
      for (std::int64_t i = 0; i < kTensors; ++i) {
        const auto size = static_cast<float>(i * 37 % 101);
        next.push_back(i % 11 == 0 ? kNan : i % 13 == 0 ? kInfinity : i % 7 == 0 ? 0 : size);
        amax.push_back(size / 2);
      }
      for (std::int64_t i = 0; i < slots * kTensors; ++i)
        history.push_back(static_cast<float>(i * 7919 % 211));
      const DeviceArray<float> d_next(next), d_amax(amax), d_history(history);
      expect_runs(keep_amaxes({.slots = slots,
                               .tensors = kTensors,
                               .recent = recent,
                               .next_amax = d_next.data(),
                               .amax = d_amax.data(),
                               .history = d_history.data()},
                              nullptr));
      kernels::keep_amaxes({.slots = slots,
                            .tensors = kTensors,
                            .recent = recent,
                            .next_amax = next.data(),
                            .amax = amax.data(),
                            .history = history.data()});
      const auto bits = [](const std::vector<float>& values) {
        std::vector<std::uint32_t> all;
        for (const float value : values) all.push_back(std::bit_cast<std::uint32_t>(value));
        return all;
      };
      EXPECT_EQ(bits(d_next.download()), bits(next));
      EXPECT_EQ(bits(d_amax.download()), bits(amax));
      EXPECT_EQ(bits(d_history.download()), bits(history));
    }
}

}  // namespace
}  // namespace mfsdp::cuda
