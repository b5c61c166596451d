// Scales of blocks of 128 values: casts against the CPU's to the bit, GEMMs against fp64.
#include "gpu_backend/cuda/kernels/fp8_blocks.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "gpu_backend/cuda/gemm_fp8.hpp"
#include "tests/gpu_backend/cuda/device/launch.hpp"
#include "verify/cpu/kernels/fp8_blocks.hpp"

namespace mfsdp::cuda {
namespace {

/// Values of many sizes; blocks of zeros, with NaN, with an infinity, of the least and largest numbers.
std::vector<Bf16> uneven_values(std::int64_t rows, std::int64_t cols, unsigned seed, bool odd) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<Bf16> values;
  for (std::int64_t i = 0; i < rows * cols; ++i)
    values.push_back(narrow<Bf16>(normal(random) * std::exp2(static_cast<float>(i / 64 % 13) - 6)));
  if (!odd) return values;
  const auto set = [&](std::int64_t row, std::int64_t col, float value) {
    values[static_cast<std::size_t>(row * cols + col)] = narrow<Bf16>(value);
  };
  for (std::int64_t c = 0; c < cols; ++c) set(1, c, 0), set(2, c, c % 2 == 0 ? 1e-40F : 0);
  for (std::int64_t r = 0; r < rows; ++r) set(r, 5, 0), set(r, 6, -1e-39F);
  set(3, 9, std::numeric_limits<float>::quiet_NaN());
  set(4, 10, -std::numeric_limits<float>::infinity());
  set(7, 11, -3.3e38F);
  return values;
}

/// The casts of one matrix, by the GPU and by the CPU.
struct BlockCasts {
  BlockCasts(std::vector<Bf16> of, std::int64_t row_count, std::int64_t col_count, bool of_weight)
      : values(std::move(of)), rows(row_count), cols(col_count), lines(of_weight ? 1 : 128) {
    const auto of_scales = static_cast<std::size_t>(rows * cols / 128 / (of_weight ? 128 : 1));
    codes.resize(values.size());
    codes_t.resize(values.size());
    scales.resize(of_scales);
    scales_t.resize(of_scales);
    kernels::cast_blocks(
        call(values.data(), codes.data(), scales.data(), codes_t.data(), scales_t.data()));
  }
  [[nodiscard]] kernels::CastBlocks<Bf16> call(const Bf16* input, Fp8E4m3* output, float* scale,
                                               Fp8E4m3* output_t, float* scale_t) const {
    const auto code = [](Fp8E4m3* at) {
      return TypedBytes<BlockCode>{reinterpret_cast<BlockCode*>(at), DType::fp8_e4m3};
    };
    const auto scales_at = [](float* at) {
      return TypedBytes<BlockScale>{reinterpret_cast<BlockScale*>(at), DType::fp32};
    };
    return {.block = 128,
            .codes = 128,
            .lines = lines,
            .blocks = cols / 128,
            .blocks_t = rows / 128,
            .input = input,
            .output = code(output),
            .output_scale = scales_at(output == nullptr ? nullptr : scale),
            .output_t = code(output_t),
            .output_t_scale = scales_at(output_t == nullptr ? nullptr : scale_t)};
  }
  std::vector<Bf16> values;
  std::int64_t rows, cols, lines;
  std::vector<Fp8E4m3> codes, codes_t;
  std::vector<float> scales, scales_t;
};

TEST(DeviceFp8Blocks, CastsAreTheCpusToTheBit) {
  for (const bool of_weight : {false, true})
    for (const auto& [rows, cols] : {std::pair{128, 128}, {384, 256}, {256, 896}}) {
      const BlockCasts cast(uneven_values(rows, cols, 3, true), rows, cols, of_weight);
      const DeviceArray<Bf16> input(cast.values);
      for (const int copies : {1, 2, 3}) {  // stored, transposed, both
        SCOPED_TRACE(testing::Message() << rows << "x" << cols << " " << of_weight << copies);
        const auto count = static_cast<std::int64_t>(cast.codes.size());
        const auto of_scales = static_cast<std::int64_t>(cast.scales.size());
        const DeviceArray<Fp8E4m3> output(count), output_t(count);
        const DeviceArray<float> scale(of_scales), scale_t(of_scales);
        expect_runs(cast_blocks(
            cast.call(input.data(), (copies & 1) != 0 ? output.data() : nullptr, scale.data(),
                      (copies & 2) != 0 ? output_t.data() : nullptr, scale_t.data()),
            nullptr));
        if ((copies & 1) != 0) {
          EXPECT_TRUE(same_bits(output.download(), cast.codes));
          EXPECT_TRUE(same_bits(scale.download(), cast.scales));
        }
        if ((copies & 2) != 0) {
          EXPECT_TRUE(same_bits(output_t.download(), cast.codes_t));
          EXPECT_TRUE(same_bits(scale_t.download(), cast.scales_t));
        }
        EXPECT_TRUE(output.margin_is_whole() && output_t.margin_is_whole() &&
                    scale.margin_is_whole() && scale_t.margin_is_whole());
      }
    }
}

TEST(DeviceFp8Blocks, EveryBf16NumberBecomesTheCpusCode) {
  std::vector<Bf16> all;
  for (std::uint32_t i = 0; i < 65536; ++i)  // rows of neighbours, columns of all sizes
    all.push_back({static_cast<std::uint16_t>(i)});
  for (const bool of_weight : {false, true}) {
    const BlockCasts cast(all, 256, 256, of_weight);
    const DeviceArray<Bf16> input(cast.values);
    const DeviceArray<Fp8E4m3> output(65536), output_t(65536);
    const DeviceArray<float> scale(512), scale_t(512);
    expect_runs(cast_blocks(
        cast.call(input.data(), output.data(), scale.data(), output_t.data(), scale_t.data()),
        nullptr));
    EXPECT_TRUE(same_bits(output.download(), cast.codes));
    EXPECT_TRUE(same_bits(output_t.download(), cast.codes_t));
  }
}

TEST(DeviceFp8Blocks, LaysOutScalesInPaddedRows) {
  const DeviceArray<float> scales(std::vector<float>{1, 2, 3, 4, 5, 6});  // 3 blocks, 2 lines
  const DeviceArray<float> to(8);
  expect_runs(lay_out_scales(3, 2, scales.data(), to.data(), nullptr));
  EXPECT_EQ(to.download(), (std::vector<float>{1, 3, 5, 0, 2, 4, 6, 0}));
  EXPECT_TRUE(to.margin_is_whole());
}

[[nodiscard]] bool multiplies_blocks() {
  const auto able = check_fp8_block_device();
  return able.has_value();
}

/// c (+)= a b^T of casts, against fp64. `tile`: rows of a block of b.
template <class C>
void expect_block_product(std::int64_t rows, std::int64_t cols, std::int64_t inner,
                          std::int64_t tile, bool adds) {
  SCOPED_TRACE(testing::Message() << rows << "x" << cols << "x" << inner << " " << tile << adds);
  const BlockCasts a(uneven_values(rows, inner, 1, false), rows, inner, false);
  const BlockCasts b(uneven_values(cols, inner, 2, false), cols, inner, tile == 128);
  const auto before = random_values<C>(rows * cols, 4);
  const DeviceArray<Fp8E4m3> d_a(a.codes), d_b(b.codes);
  const DeviceArray<float> a_scales(a.scales), b_scales(b.scales);
  const DeviceArray<C> d_c(before);
  const DeviceArray<float> laid_out(cols / tile * padded_scales(inner / 128));
  const DeviceArray<std::uint8_t> workspace(32 << 20);
  const GemmShape shape{.rows = rows,
                        .cols = cols,
                        .inner = inner,
                        .a_row = inner,
                        .b_row = inner,
                        .b_transposed = true,
                        .adds = adds,
                        .operands = DType::fp8_e4m3,
                        .result = dtype_of<C>,
                        .a_scale_rows = 1,
                        .b_scale_rows = tile};
  if (tile == 128)
    expect_runs(
        lay_out_scales(inner / 128, cols / tile, b_scales.data(), laid_out.data(), nullptr));
  const GemmMemory memory{.a = d_a.data(),
                          .b = d_b.data(),
                          .c = d_c.data(),
                          .workspace = workspace.as_bytes(),
                          .a_scale = a_scales.data(),
                          .b_scale = tile == 128 ? laid_out.data() : b_scales.data()};
  auto planner = GemmPlanner::create({});
  ASSERT_TRUE(planner);
  const auto prepared = planner->prepare(shape, memory, nullptr);
  ASSERT_TRUE(prepared) << prepared.error().message();
  expect_runs(planner->run(shape, memory, nullptr));
  const auto value = [](const BlockCasts& of, std::int64_t row, std::int64_t col) {
    const std::int64_t of_tile = of.lines == 1 ? 128 : 1;
    return static_cast<double>(widen(of.codes[static_cast<std::size_t>(row * of.cols + col)])) *
           static_cast<double>(of.scales[static_cast<std::size_t>(col / 128 * (of.rows / of_tile) +
                                                                  row / of_tile)]);
  };
  std::vector<double> expected;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < cols; ++j) {
      double sum =
          adds ? static_cast<double>(widen(before[static_cast<std::size_t>(i * cols + j)])) : 0;
      for (std::int64_t t = 0; t < inner; ++t) sum += value(a, i, t) * value(b, j, t);
      expected.push_back(sum);
    }
  EXPECT_LT(relative_error(d_c.download(), expected), sizeof(C) == 2 ? 4e-3 : 5e-4);
  EXPECT_TRUE(d_c.margin_is_whole());
}

TEST(DeviceFp8Blocks, MultipliesAsFp64) {
  if (!multiplies_blocks()) GTEST_SKIP() << "scales of blocks of 128 are Hopper's";
  for (const std::int64_t tile : {1, 128}) {
    expect_block_product<Bf16>(128, 256, 384, tile, false);  // 3 blocks: padded to 4
    expect_block_product<Bf16>(256, 128, 1024, tile, true);
    expect_block_product<float>(256, 256, 640, tile, true);
    expect_block_product<float>(128, 384, 512, tile, false);
  }
}

}  // namespace
}  // namespace mfsdp::cuda
