#include "verify/cpu/kernels/fp8_blocks.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "core/plan/fp8_blocks.hpp"

namespace mfsdp::kernels {
namespace {

/// A matrix of values of many sizes, and its casts.
struct Casted {
  Casted(Fp8Recipe recipe, std::int64_t row_count, std::int64_t col_count, bool of_weight,
         unsigned seed)
      : format(*block_format(recipe)), rows(row_count), cols(col_count) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < rows * cols; ++i)
      values.push_back(normal(random) * std::exp2(static_cast<float>(i / 64 % 13) - 6));
    call = {.block = format.block,
            .codes = format.codes_of,
            .lines = format.lines(of_weight),
            .blocks = cols / format.block,
            .blocks_t = rows / format.block};
    tile = format.block / call.lines;
    cast();
  }

  void cast() {
    const auto size = [](std::int64_t count) { return static_cast<std::size_t>(count); };
    const std::int64_t of_scale = size_of(format.scales);
    codes.resize(size(rows * call.blocks * call.codes));
    codes_t.resize(size(cols * call.blocks_t * call.codes));
    scales.resize(size(call.blocks * rows / tile * of_scale));
    scales_t.resize(size(call.blocks_t * cols / tile * of_scale));
    call.input = values.data();
    call.output = {codes.data(), format.codes};
    call.output_t = {codes_t.data(), format.codes};
    call.output_scale = {scales.data(), format.scales};
    call.output_t_scale = {scales_t.data(), format.scales};
    if (format.has_tensor_scale) {
      amax = largest_magnitude(values.data(), rows * cols);
      call.amax = &amax;
      call.tensor_scale = &tensor_scale;
    }
    cast_blocks(call);
  }

  /// The value that a code and its scale stand for.
  [[nodiscard]] float value(bool transposed, std::int64_t row, std::int64_t col) const {
    const std::int64_t blocks = transposed ? call.blocks_t : call.blocks;
    const std::int64_t block = col / format.block;
    const std::int64_t in_block = col % format.block;
    const std::int64_t lines = (transposed ? cols : rows) / tile;
    const BlockCode* from =
        (transposed ? codes_t : codes).data() + (row * blocks + block) * call.codes;
    const float code = format.codes == DType::fp8_e4m3
                           ? widen(Fp8E4m3{from[in_block].bits})
                           : widen(Fp4E2m1{static_cast<std::uint8_t>(from[in_block / 2].bits >>
                                                                     (in_block % 2 * 4))});
    const TypedBytes<const BlockScale> scale{(transposed ? scales_t : scales).data(),
                                             format.scales};
    return code * scale_at(scale, block * lines + row / tile) * tensor_scale;
  }

  BlockFormat format;
  std::int64_t rows, cols;
  std::int64_t tile = 1;
  std::vector<float> values;
  CastBlocks<float> call;
  std::vector<BlockCode> codes, codes_t;
  std::vector<BlockScale> scales, scales_t;
  float amax = 0;
  float tensor_scale = 1;
};

constexpr std::array kRecipes{Fp8Recipe::blockwise, Fp8Recipe::mxfp8, Fp8Recipe::nvfp4};

/// A code has 3 fraction bits, or 1; a scale of 3 bits may be off by 1 / 16 more, which nvfp4's codes
/// make up for but for their saturation. Blocks of the transpose have scales of their own.
TEST(BlockCasts, AreTheValuesWithinTheirBlocksRounding) {
  for (const Fp8Recipe recipe : kRecipes)
    for (const bool of_weight : {false, true}) {
      const Casted cast(recipe, 128, 256, of_weight, 3);
      const bool in_fp4 = cast.format.codes == DType::fp4_e2m1x2;
      for (const bool transposed : {false, true})
        for (std::int64_t r = 0; r < cast.rows; ++r)
          for (std::int64_t c = 0; c < cast.cols; ++c) {
            const float wanted = cast.values[static_cast<std::size_t>(r * cast.cols + c)];
            const std::int64_t block = cast.format.block;
            float most = 0;  // of its block
            const std::int64_t rows_of = cast.tile;
            const std::int64_t row = transposed ? c : r;
            const std::int64_t col = transposed ? r : c;
            for (std::int64_t i = row / rows_of * rows_of; i < (row / rows_of + 1) * rows_of; ++i)
              for (std::int64_t j = col / block * block; j < (col / block + 1) * block; ++j)
                most = std::max(most, std::fabs(cast.values[static_cast<std::size_t>(
                                          transposed ? j * cast.cols + i : i * cast.cols + j)]));
            const float step = in_fp4 ? std::max(std::fabs(wanted) / 4, most / 6 / 4 * 1.1F)
                                      : std::max(std::fabs(wanted) / 16, most * 0x1p-17F);
            const float cut = in_fp4 ? most / 16 : 0;
            ASSERT_NEAR(cast.value(transposed, row, col), wanted, (step + cut) * 1.001F)
                << to_string(recipe) << " " << transposed << " " << row << " " << col;
          }
    }
}

/// Scales by hand: a block whose largest magnitude is 7, one of zeros, and NaN.
TEST(BlockCasts, ScalesFollowTheRulesOfTheirFormats) {
  Casted blocks(Fp8Recipe::blockwise, 128, 128, false, 1);
  for (float& value : blocks.values) value = 0;
  blocks.values[5] = -7;
  blocks.cast();
  float scale = 0;
  std::memcpy(&scale, blocks.scales.data(), sizeof scale);
  EXPECT_EQ(scale, 1 / (448 / 7.0F));
  EXPECT_EQ(blocks.value(false, 0, 5), -7);
  std::memcpy(&scale, blocks.scales.data() + 4, sizeof scale);
  EXPECT_EQ(scale, 1);

  Casted mx(Fp8Recipe::mxfp8, 32, 32, false, 1);
  for (float& value : mx.values) value = 0;
  mx.values[5] = -7;     // 7 / 448 = 2^-6
  mx.values[32] = 7.1F;  // the next power of two
  mx.values[64] = std::numeric_limits<float>::quiet_NaN();
  mx.cast();
  EXPECT_EQ(static_cast<int>(mx.scales[0].first), 127 - 6);
  EXPECT_EQ(static_cast<int>(mx.scales[1].first), 127 - 5);
  EXPECT_EQ(static_cast<int>(mx.scales[2].first), 0xff);
  EXPECT_EQ(static_cast<int>(mx.scales[3].first), 0);
  EXPECT_TRUE(std::isnan(mx.value(false, 2, 9)));
  EXPECT_EQ(mx.value(false, 0, 5), -7);

  Casted fp4(Fp8Recipe::nvfp4, 16, 16, false, 1);
  for (float& value : fp4.values) value = 0;
  fp4.values[5] = 12;  // the largest of the tensor: E4M3's largest number
  fp4.values[16] = 3;
  fp4.cast();
  EXPECT_EQ(fp4.tensor_scale, 1 / (448 * 6 / 12.0F));
  EXPECT_EQ(widen(Fp8E4m3{static_cast<std::uint8_t>(fp4.scales[0].first)}), 448);
  EXPECT_EQ(widen(Fp8E4m3{static_cast<std::uint8_t>(fp4.scales[1].first)}), 112);
  EXPECT_NEAR(fp4.value(false, 0, 5), 12, 1e-5);
  EXPECT_NEAR(fp4.value(false, 1, 0), 3, 1e-5);
}

/// Each GEMM is that of the values that codes and scales stand for, with errors of sums in fp32.
TEST(BlockProducts, AreThoseOfCodesTimesScales) {
  for (const Fp8Recipe recipe : kRecipes)
    for (const bool tiles : {false, true}) {
      const Casted a(recipe, 128, 256, false, 5);
      const Casted b(recipe, 384, 256, tiles, 6);
      std::vector<float> c(static_cast<std::size_t>(a.rows * b.rows), 0.5F);
      BlockGemm<float> g{.rows = a.rows,
                         .cols = b.rows,
                         .block = a.format.block,
                         .blocks = a.call.blocks,
                         .codes = a.call.codes,
                         .b_lines = b.rows / b.tile,
                         .a = {a.codes.data(), a.format.codes},
                         .a_scale = {a.scales.data(), a.format.scales},
                         .b = {b.codes.data(), b.format.codes},
                         .b_scale = {b.scales.data(), b.format.scales},
                         .c = c.data(),
                         .adds = true};
      if (a.format.has_tensor_scale) g.a_tensor_scale = &a.tensor_scale;
      if (a.format.has_tensor_scale) g.b_tensor_scale = &b.tensor_scale;
      block_gemm(g);
      for (std::int64_t i = 0; i < a.rows; i += 17)
        for (std::int64_t j = 0; j < b.rows; j += 13) {
          double sum = 0.5;
          double size = 0.5;
          for (std::int64_t k = 0; k < a.cols; ++k) {
            const double term = static_cast<double>(a.value(false, i, k)) * b.value(false, j, k);
            sum += term;
            size += std::fabs(term);
          }
          ASSERT_NEAR(c[static_cast<std::size_t>(i * b.rows + j)], sum, size * 256 * 0x1p-24)
              << to_string(recipe) << " " << tiles;
        }
    }
}

}  // namespace
}  // namespace mfsdp::kernels
