#include <gtest/gtest.h>

#include "verify/cpu/kernels/optimizer.hpp"

namespace mfsdp::kernels {
namespace {

TEST(Lion, GoesByTheSign) {
  std::vector<double> weights{2, -3, 5};
  std::vector<double> momentum{1, 0.1, 0};
  const std::vector<double> gradients{-4, -8, 0};
  advance<LionRule, double, double>(
      {.learning_rate = 0.1, .keep = 1 - 0.1 * 0.5, .beta1 = 0.9, .beta2 = 0.99}, 1, 3,
      gradients.data(), {momentum.data()}, weights.data());
  EXPECT_DOUBLE_EQ(weights[0], 2 * 0.95 - 0.1);   // 0.9 * 1 - 0.1 * 4 > 0
  EXPECT_DOUBLE_EQ(weights[1], -3 * 0.95 + 0.1);  // 0.09 - 0.8 < 0
  EXPECT_DOUBLE_EQ(weights[2], 5 * 0.95);
  EXPECT_DOUBLE_EQ(momentum[0], 0.99 - 0.04);
}

TEST(Bf16States, AreRoundedOnceAfterArithmeticInFp32) {
  std::vector<float> weights{0, 0};
  std::vector<Bf16> momentum{narrow<Bf16>(1), narrow<Bf16>(1)};
  const std::vector<float> gradients{1.0F / 256, 3.0F / 256};
  advance<LionRule, float, float, Bf16>({.learning_rate = 1, .beta1 = 0, .beta2 = 0.5F}, 1, 2,
                                        gradients.data(), {momentum.data()}, weights.data());
  // Of 8 bits, from 0.5 on 1/256 apart: 0.5 + 1/512 and 0.5 + 3/512 are ties, which go to even.
  EXPECT_EQ(widen(momentum[0]), 0.5F);
  EXPECT_EQ(widen(momentum[1]), 0.5F + 2.0F / 256);
  EXPECT_EQ(weights[0], -1);  // the direction is the gradient's, not yet rounded
}

/// Each value is a code's, times the block's largest magnitude.
TEST(StatesInBytes, AreCodesTimesTheLargest) {
  std::array<float, kStateBlock> values{};
  values[0] = -8;
  values[1] = 8 * value_of_code<true>(70);
  values[2] = 8 * value_of_code<true>(5);
  values[kStateBlock - 1] = 1e-9F;
  std::array<std::uint8_t, kStateBlock> codes{};
  float scale = 0;
  encode_block<true>(values.data(), codes.data(), scale);
  EXPECT_EQ(scale, 8);
  EXPECT_EQ(codes[0], 255);
  EXPECT_EQ(codes[1], 70);
  EXPECT_EQ(codes[2], 5);
  EXPECT_EQ(codes[3], 0);
  EXPECT_EQ(codes[kStateBlock - 1], 0);
  std::array<float, kStateBlock> decoded{};
  decode_block<true>(codes.data(), scale, decoded.data());
  EXPECT_EQ(decoded[0], -8 * 0.99296875F);  // 1 has a code, -1 has none
  EXPECT_EQ(decoded[1], values[1]);
  EXPECT_EQ(decoded[3], 0);
}

TEST(StatesInBytes, OfZerosHaveAScaleOfZero) {
  const std::array<float, kStateBlock> values{};
  std::array<std::uint8_t, kStateBlock> codes{};
  codes.fill(9);
  float scale = 3;
  encode_block<false>(values.data(), codes.data(), scale);
  EXPECT_EQ(scale, 0);
  EXPECT_EQ(codes[0], 0);
  EXPECT_EQ(codes[kStateBlock - 1], 0);
}

}  // namespace
}  // namespace mfsdp::kernels
