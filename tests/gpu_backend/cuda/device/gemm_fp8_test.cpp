#include "gpu_backend/cuda/gemm_fp8.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "tests/gpu_backend/cuda/device/launch.hpp"

namespace mfsdp::cuda {
namespace {

struct Fp8Form {
  bool fast = false;
  bool adds = false;
  bool bias = false;
};

/// c = a_scale b_scale a b^T (+ bias) (+ c), against fp64.
template <class A, class B, class C>
void expect_fp8_product(std::int64_t rows, std::int64_t cols, std::int64_t inner, Fp8Form form) {
  SCOPED_TRACE(testing::Message() << rows << "x" << cols << "x" << inner << " fast " << form.fast
                                  << " adds " << form.adds << " bias " << form.bias);
  const auto a = random_values<A>(rows * inner, 1, 50);
  const auto b = random_values<B>(cols * inner, 2, 50);
  const auto bias = random_values<Bf16>(cols, 3);
  const auto before = random_values<C>(rows * cols, 4);
  const DeviceArray<A> d_a(a);
  const DeviceArray<B> d_b(b);
  const DeviceArray<C> d_c(before);
  const DeviceArray<Bf16> d_bias(bias);
  const DeviceArray<float> scales(std::vector<float>{0.02F, 0, 0, 0, 0.5F});
  const DeviceArray<std::uint8_t> workspace(32 << 20);
  const GemmShape shape{
      .rows = rows,
      .cols = cols,
      .inner = inner,
      .a_row = inner,
      .b_row = inner,
      .b_transposed = true,
      .bias = form.bias,
      .adds = form.adds,
      .operands = dtype_of<A>,
      .result = dtype_of<C>,
      .operands_b = std::is_same_v<A, B> ? std::nullopt : std::optional(dtype_of<B>),
      .fast = form.fast};
  const GemmMemory memory{.a = d_a.data(),
                          .b = d_b.data(),
                          .bias = form.bias ? d_bias.data() : nullptr,
                          .c = d_c.data(),
                          .workspace = workspace.as_bytes(),
                          .a_scale = scales.data(),
                          .b_scale = scales.data() + 4};
  auto planner = GemmPlanner::create({});
  ASSERT_TRUE(planner);
  const auto prepared = planner->prepare(shape, memory, nullptr);
  ASSERT_TRUE(prepared) << prepared.error().message();
  expect_runs(planner->run(shape, memory, nullptr));
  std::vector<double> expected;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) {
      double sum = 0;
      for (std::int64_t t = 0; t < inner; ++t)
        sum += static_cast<double>(widen(a[static_cast<std::size_t>(i * inner + t)])) *
               static_cast<double>(widen(b[static_cast<std::size_t>(j * inner + t)]));
      sum *= static_cast<double>(0.02F) * 0.5;
      if (form.bias) sum += static_cast<double>(widen(bias[static_cast<std::size_t>(j)]));
      if (form.adds)
        sum += static_cast<double>(widen(before[static_cast<std::size_t>(i * cols + j)]));
      expected.push_back(sum);
    }
  const double error = relative_error(d_c.download(), expected);
  // Measured: 3e-3 in bf16; in fp32 1.1e-3, as tensor cores keep some 14 bits of a sum, and less than
  // half of that where sums are split.
  EXPECT_LT(error, sizeof(C) == 2 ? 4e-3 : form.fast ? 2e-3 : 5e-4);
  EXPECT_TRUE(d_c.margin_is_whole());
}

TEST(DeviceGemmFp8, MultipliesAsFp64) {
  for (const bool fast : {false, true}) {
    expect_fp8_product<Fp8E4m3, Fp8E4m3, Bf16>(64, 96, 512, {.fast = fast});
    expect_fp8_product<Fp8E4m3, Fp8E4m3, Bf16>(64, 96, 512, {.fast = fast, .bias = true});
    expect_fp8_product<Fp8E5m2, Fp8E4m3, Bf16>(80, 48, 4096, {.fast = fast, .adds = true});
    expect_fp8_product<Fp8E5m2, Fp8E4m3, float>(80, 48, 4096, {.fast = fast, .adds = true});
    expect_fp8_product<Fp8E4m3, Fp8E5m2, float>(16, 16, 16, {.fast = fast});
  }
}

TEST(DeviceGemmFp8, NeedsScalesOnMultiplesOf16Bytes) {
  const DeviceArray<Fp8E4m3> operand(64 * 64);
  const DeviceArray<Bf16> result(64 * 64);
  const DeviceArray<float> scales(8);
  auto planner = GemmPlanner::create({});
  ASSERT_TRUE(planner);
  const auto prepared = planner->prepare({.rows = 64,
                                          .cols = 64,
                                          .inner = 64,
                                          .a_row = 64,
                                          .b_row = 64,
                                          .b_transposed = true,
                                          .operands = DType::fp8_e4m3},
                                         {.a = operand.data(),
                                          .b = operand.data(),
                                          .c = result.data(),
                                          .workspace = {},
                                          .a_scale = scales.data(),
                                          .b_scale = scales.data() + 1},
                                         nullptr);
  ASSERT_FALSE(prepared);
  EXPECT_NE(prepared.error().message().find("scales on multiples of 16 bytes"), std::string::npos);
}

}  // namespace
}  // namespace mfsdp::cuda
