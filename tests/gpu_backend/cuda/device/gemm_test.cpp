#include "gpu_backend/cuda/gemm.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "gpu_backend/cuda/gemm_call.hpp"
#include "tests/gpu_backend/cuda/device/device_array.hpp"

namespace mfsdp::cuda {
namespace {

constexpr std::int64_t kWorkspaceBytes = 32 << 20;

struct ProductSizes {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t inner = 0;
};

/// Properties of a GEMM besides sizes and types. The three GEMMs of a linear layer are among them.
struct Form {
  bool a_transposed = false;
  bool b_transposed = false;
  bool bias = false;
  bool adds = false;
};

constexpr Form kForward{.b_transposed = true};
constexpr Form kForwardWithBias{.b_transposed = true, .bias = true};
constexpr Form kInputGradient{};
constexpr Form kWeightGradient{.a_transposed = true};
constexpr Form kAddedWeightGradient{.a_transposed = true, .adds = true};

/// op(m)[row, col] of a matrix with `stored_cols` stored columns.
double element(const std::vector<double>& m, std::int64_t stored_cols, bool transposed,
               std::int64_t row, std::int64_t col) {
  if (transposed) std::swap(row, col);
  return m[static_cast<std::size_t>(row * stored_cols + col)];
}

/// Operands on the device, and what should come out.
template <class T, class C>
struct Product {
  Product(const ProductSizes& s, const Form& form)
      : shape{.rows = s.rows,
              .cols = s.cols,
              .inner = s.inner,
              .a_row = form.a_transposed ? s.rows : s.inner,
              .b_row = form.b_transposed ? s.inner : s.cols,
              .a_transposed = form.a_transposed,
              .b_transposed = form.b_transposed,
              .bias = form.bias,
              .adds = form.adds,
              .operands = dtype_of<T>,
              .result = dtype_of<C>,
              .alignment = 256},
        a_values(random_values<T>(s.rows * s.inner, 1)),
        b_values(random_values<T>(s.inner * s.cols, 2)),
        bias_values(random_values<T>(s.cols, 3)),
        c_values(random_values<C>(s.rows * s.cols, 4)),
        a(a_values),
        b(b_values),
        bias(bias_values),
        c(s.rows * s.cols),
        workspace(kWorkspaceBytes) {
    reset();
  }

  /// Results to be added to, or poison.
  void reset() {
    if (shape.adds)
      require(
          cudaMemcpy(c.data(), c_values.data(), c_values.size() * sizeof(C), cudaMemcpyDefault));
    else
      c.poison();
  }

  [[nodiscard]] GemmMemory memory() const {
    return {.a = a.data(),
            .b = b.data(),
            .bias = shape.bias ? bias.data() : nullptr,
            .c = c.data(),
            .workspace = workspace.as_bytes()};
  }

  [[nodiscard]] std::vector<double> expected() const {
    const std::vector<double> wide_a = widened(a_values);
    const std::vector<double> wide_b = widened(b_values);
    std::vector<double> out;
    for (std::int64_t i = 0; i < shape.rows; ++i)
      for (std::int64_t j = 0; j < shape.cols; ++j) {
        double sum = shape.bias ? widen(bias_values[static_cast<std::size_t>(j)]) : 0;
        if (shape.adds) sum += widen(c_values[static_cast<std::size_t>(i * shape.cols + j)]);
        for (std::int64_t k = 0; k < shape.inner; ++k)
          sum += element(wide_a, shape.a_row, shape.a_transposed, i, k) *
                 element(wide_b, shape.b_row, shape.b_transposed, k, j);
        out.push_back(sum);
      }
    return out;
  }

  GemmShape shape;
  std::vector<T> a_values, b_values, bias_values;
  std::vector<C> c_values;
  DeviceArray<T> a, b, bias;
  DeviceArray<C> c;
  DeviceArray<std::uint8_t> workspace;
};

template <class T, class C>
void expect_product(const ProductSizes& sizes, const Form& form,
                    const GemmSettings& settings = {}) {
  Product<T, C> product(sizes, form);
  SCOPED_TRACE(to_string(product.shape));
  auto planner = GemmPlanner::create(settings);
  ASSERT_TRUE(planner) << planner.error().message();
  const auto prepared = planner->prepare(product.shape, product.memory(), nullptr);
  ASSERT_TRUE(prepared) << prepared.error().message();
  product.reset();
  const auto ran = planner->run(product.shape, product.memory(), nullptr);
  ASSERT_TRUE(ran) << ran.error().message();
  EXPECT_LT(relative_error(product.c.download(), product.expected()), kTolerance<C>);
  EXPECT_TRUE(product.c.margin_is_whole());
}

/// Whole tiles; parts of tiles; rows of no even length.
const std::vector<ProductSizes> kProductSizes{
    {128, 256, 64}, {200, 72, 136}, {37, 53, 29}, {1, 8, 8}};

TEST(Gemm, ForwardAgreesWithDoubles) {
  for (const ProductSizes& sizes : kProductSizes)
    for (const Form& form : {kForward, kForwardWithBias}) {
      expect_product<Bf16, Bf16>(sizes, form);
      expect_product<Fp16, Fp16>(sizes, form);
      expect_product<float, float>(sizes, form);
    }
}

/// GEMMs of adapters: scaled, with a short inner dimension, written to some columns of wider rows.
/// The other columns must not change.
template <class T>
void expect_columns(const ProductSizes& s, std::int64_t before, std::int64_t behind) {
  const std::int64_t pitch = before + s.cols + behind;
  constexpr float scale = 1.5;
  const std::vector<T> a = random_values<T>(s.rows * s.inner, 1);
  const std::vector<T> b = random_values<T>(s.cols * s.inner, 2);
  const std::vector<T> c = random_values<T>(s.rows * pitch, 3);
  const DeviceArray<T> device_a(a);
  const DeviceArray<T> device_b(b);
  DeviceArray<T> device_c(c);
  DeviceArray<std::uint8_t> workspace(kWorkspaceBytes);
  const kernels::Gemm<T, T> call{.rows = s.rows,
                                 .cols = s.cols,
                                 .inner = s.inner,
                                 .a = {.data = device_a.data(), .row = s.inner},
                                 .b = {.data = device_b.data(), .row = s.inner, .transposed = true},
                                 .c = device_c.data() + before,
                                 .c_row = pitch,
                                 .adds = true,
                                 .scale = scale,
                                 .workspace = workspace.as_bytes()};
  auto planner = GemmPlanner::create({});
  ASSERT_TRUE(planner) << planner.error().message();
  const auto prepared = prepare(*planner, call, nullptr);
  ASSERT_TRUE(prepared) << prepared.error().message();
  const auto ran = run(*planner, call, nullptr);
  ASSERT_TRUE(ran) << ran.error().message();
  std::vector<double> expected = widened(c);
  const std::vector<double> wide_a = widened(a);
  const std::vector<double> wide_b = widened(b);
  for (std::int64_t i = 0; i < s.rows; ++i)
    for (std::int64_t j = 0; j < s.cols; ++j)
      for (std::int64_t k = 0; k < s.inner; ++k)
        expected[static_cast<std::size_t>(i * pitch + before + j)] +=
            double{scale} * wide_a[static_cast<std::size_t>(i * s.inner + k)] *
            wide_b[static_cast<std::size_t>(j * s.inner + k)];
  EXPECT_LT(relative_error(device_c.download(), expected), kTolerance<T>);
  const std::vector<double> got = widened(device_c.download());
  for (std::int64_t i = 0; i < s.rows; ++i)
    for (std::int64_t j = 0; j < pitch; ++j)
      if (j < before || j >= before + s.cols) {
        ASSERT_EQ(got[static_cast<std::size_t>(i * pitch + j)],
                  widen(c[static_cast<std::size_t>(i * pitch + j)]))
            << i << ", " << j;
      }
}

TEST(Gemm, AddsAScaledProductToColumnsOfWiderRows) {
  expect_columns<Bf16>({.rows = 200, .cols = 128, .inner = 16}, 256, 128);
  expect_columns<Fp16>({.rows = 64, .cols = 64, .inner = 8}, 0, 192);
  expect_columns<float>({.rows = 37, .cols = 24, .inner = 3}, 8, 0);
  expect_columns<Bf16>({.rows = 33, .cols = 10, .inner = 3}, 6, 5);
}

/// The three GEMMs of a head with 1029 columns, whose logits have rows of 1032: cuBLASLt's fast
/// kernels take multiples of 8 alone.
template <class T, class C>
void expect_ragged(const ProductSizes& s, const Form& form, std::int64_t a_row,
                   std::int64_t c_row) {
  SCOPED_TRACE(testing::Message() << s.rows << " x " << s.cols << " x " << s.inner);
  const std::int64_t a_rows = form.a_transposed ? s.inner : s.rows;
  const std::int64_t b_row = form.b_transposed ? s.inner : s.cols;
  const std::vector<T> a = random_values<T>(a_rows * a_row, 1);
  const std::vector<T> b = random_values<T>(s.cols * s.inner, 2);
  const std::vector<T> bias = random_values<T>(s.cols, 3);
  const std::vector<C> c = random_values<C>(s.rows * c_row, 4);
  const DeviceArray<T> device_a(a), device_b(b), device_bias(bias);
  DeviceArray<C> device_c(c);
  DeviceArray<std::uint8_t> workspace(kWorkspaceBytes);
  const kernels::Gemm<T, C> call{
      .rows = s.rows,
      .cols = s.cols,
      .inner = s.inner,
      .a = {.data = device_a.data(), .row = a_row, .transposed = form.a_transposed},
      .b = {.data = device_b.data(), .row = b_row, .transposed = form.b_transposed},
      .bias = form.bias ? device_bias.data() : nullptr,
      .c = device_c.data(),
      .c_row = c_row,
      .adds = form.adds,
      .workspace = workspace.as_bytes()};
  EXPECT_EQ(std::ranges::distance(aligned_parts({shape_of(call), memory_of(call)})), 2);
  auto planner = GemmPlanner::create({});
  ASSERT_TRUE(planner) << planner.error().message();
  const auto prepared = prepare(*planner, call, nullptr);
  ASSERT_TRUE(prepared) << prepared.error().message();
  const auto ran = run(*planner, call, nullptr);
  ASSERT_TRUE(ran) << ran.error().message();
  std::vector<double> expected = widened(c);
  const std::vector<double> wide_a = widened(a);
  const std::vector<double> wide_b = widened(b);
  for (std::int64_t i = 0; i < s.rows; ++i)
    for (std::int64_t j = 0; j < s.cols; ++j) {
      double& sum = expected[static_cast<std::size_t>(i * c_row + j)];
      if (!form.adds) sum = 0;
      if (form.bias) sum += widen(bias[static_cast<std::size_t>(j)]);
      for (std::int64_t k = 0; k < s.inner; ++k)
        sum += element(wide_a, a_row, form.a_transposed, i, k) *
               element(wide_b, b_row, form.b_transposed, k, j);
    }
  EXPECT_LT(relative_error(device_c.download(), expected), kTolerance<C>);
  EXPECT_TRUE(device_c.margin_is_whole());
}

TEST(Gemm, RaggedHeadsAgreeWithDoubles) {
  const ProductSizes forward{.rows = 40, .cols = 1029, .inner = 64};
  expect_ragged<Bf16, Bf16>(forward, kForward, 64, 1032);
  expect_ragged<Fp16, Fp16>(forward, kForwardWithBias, 64, 1032);
  expect_ragged<Bf16, Bf16>({.rows = 40, .cols = 64, .inner = 1029}, kInputGradient, 1032, 64);
  const ProductSizes gradient{.rows = 1029, .cols = 64, .inner = 40};
  expect_ragged<Bf16, float>(gradient, kWeightGradient, 1032, 64);
  expect_ragged<Bf16, Bf16>(gradient, kAddedWeightGradient, 1032, 64);
}

TEST(Gemm, InputGradientAgreesWithDoubles) {
  for (const ProductSizes& sizes : kProductSizes) {
    expect_product<Bf16, Bf16>(sizes, kInputGradient);
    expect_product<float, float>(sizes, kInputGradient);
  }
}

TEST(Gemm, WeightGradientAgreesWithDoubles) {
  for (const ProductSizes& sizes : kProductSizes)
    for (const Form& form : {kWeightGradient, kAddedWeightGradient}) {
      expect_product<Bf16, Bf16>(sizes, form);
      expect_product<Bf16, float>(sizes, form);
      expect_product<Fp16, float>(sizes, form);
      expect_product<float, float>(sizes, form);
    }
}

TEST(Gemm, TimedChoicesAreRight) {
  expect_product<Bf16, float>({128, 256, 2048}, kWeightGradient,
                              {.candidates = 8, .timed_rounds = 3});
  expect_product<Bf16, float>({128, 256, 2048}, kWeightGradient,
                              {.candidates = 8, .timed_rounds = 3, .sustained_milliseconds = 4});
}

TEST(Gemm, VariantsOfAlgorithmsAreRight) {
  for (const Form& form : {kForward, kInputGradient, kWeightGradient})
    expect_product<Bf16, Bf16>(
        {256, 512, 1024}, form,
        {.candidates = 8, .timed_rounds = 3, .sustained_milliseconds = 4, .varies = true});
}

/// A long sum over a small result: what cuBLASLt likes to split.
constexpr ProductSizes kSplit{64, 64, 8192};

TEST(Gemm, DeterministicSumsHaveEqualBits) {
  Product<Bf16, float> product(kSplit, kWeightGradient);
  auto planner = GemmPlanner::create({.candidates = 8, .timed_rounds = 2, .deterministic = true});
  ASSERT_TRUE(planner);
  ASSERT_TRUE(planner->prepare(product.shape, product.memory(), nullptr));
  std::vector<float> first;
  for (int run = 0; run < 10; ++run) {
    product.reset();
    ASSERT_TRUE(planner->run(product.shape, product.memory(), nullptr));
    const std::vector<float> got = product.c.download();
    if (run == 0) first = got;
    EXPECT_EQ(got, first);
  }
  EXPECT_LT(relative_error(first, product.expected()), kTolerance<float>);
}

TEST(Gemm, AnOfferedAlgorithmIsTaken) {
  Product<Bf16, Bf16> product({256, 512, 1024}, kForward);
  auto chooser = GemmPlanner::create({.candidates = 8, .timed_rounds = 3});
  ASSERT_TRUE(chooser);
  ASSERT_TRUE(chooser->prepare(product.shape, product.memory(), nullptr));
  ASSERT_EQ(chooser->chosen().size(), 1U);
  EXPECT_GT(chooser->chosen().front().nanoseconds, 0);

  auto taker = GemmPlanner::create({.candidates = 8, .timed_rounds = 3});
  ASSERT_TRUE(taker);
  taker->offer(chooser->chosen());
  ASSERT_TRUE(taker->prepare(product.shape, product.memory(), nullptr));
  EXPECT_EQ(taker->chosen(), chooser->chosen());
}

TEST(Gemm, AnOfferThatMeansNothingIsPassedOver) {
  Product<Bf16, Bf16> product({256, 512, 1024}, kForward);
  GemmAlgorithm wrong{.shape = product.shape, .nanoseconds = 1};
  wrong.bytes.fill(0x5a5a5a5a5a5a5a5a);
  auto planner = GemmPlanner::create({});
  ASSERT_TRUE(planner);
  planner->offer({&wrong, 1});
  ASSERT_TRUE(planner->prepare(product.shape, product.memory(), nullptr));
  EXPECT_NE(planner->chosen().front().bytes, wrong.bytes);
  ASSERT_TRUE(planner->run(product.shape, product.memory(), nullptr));
  EXPECT_LT(relative_error(product.c.download(), product.expected()), kTolerance<Bf16>);
}

TEST(Gemm, AlgorithmsFitTheWorkspace) {
  Product<Bf16, float> product(kSplit, kWeightGradient);
  GemmMemory memory = product.memory();
  memory.workspace = memory.workspace.first(0);
  auto planner = GemmPlanner::create({.candidates = 8});
  ASSERT_TRUE(planner);
  ASSERT_TRUE(planner->prepare(product.shape, memory, nullptr));
  EXPECT_EQ(planner->chosen().front().workspace_bytes, 0);
}

/// One GEMM of all rows, or one for each piece of them.
TEST(Gemm, ACallOfAPlanMayBeCutIntoPieces) {
  Product<Bf16, Bf16> product({96, 72, 40}, kForwardWithBias);
  for (const std::int64_t piece_rows : {0, 32, 3}) {
    SCOPED_TRACE(piece_rows);
    const kernels::Gemm<Bf16, Bf16> call{
        .rows = 96,
        .cols = 72,
        .inner = 40,
        .a = {.data = product.a.data(), .row = 40},
        .b = {.data = product.b.data(), .row = 40, .transposed = true},
        .bias = product.bias.data(),
        .c = product.c.data(),
        .workspace = product.workspace.as_bytes(),
        .piece_rows = piece_rows};
    // Rows of 80 and 144 bytes: pieces of three begin on multiples of 16.
    EXPECT_EQ(shape_of(call).alignment, piece_rows == 3 ? 16 : 128);
    auto planner = GemmPlanner::create({});
    ASSERT_TRUE(planner);
    product.reset();
    const auto prepared = prepare(*planner, call, nullptr);
    ASSERT_TRUE(prepared) << prepared.error().message();
    const auto ran = run(*planner, call, nullptr);
    ASSERT_TRUE(ran) << ran.error().message();
    EXPECT_LT(relative_error(product.c.download(), product.expected()), kTolerance<Bf16>);
  }
}

TEST(Gemm, AShapeThatWasNotPreparedIsAnError) {
  Product<Bf16, Bf16> product({16, 16, 16}, kForward);
  auto planner = GemmPlanner::create({});
  ASSERT_TRUE(planner);
  const auto ran = planner->run(product.shape, product.memory(), nullptr);
  ASSERT_FALSE(ran);
  EXPECT_THAT(ran.error().message(), testing::HasSubstr("16x16x16"));
}

}  // namespace
}  // namespace mfsdp::cuda
