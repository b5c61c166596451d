// Calls that are refused without a GPU.
#include "gpu_backend/cuda/grouped_products.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <string>

#include "gpu_backend/cuda/kernels/experts.hpp"

namespace mfsdp::cuda {
namespace {

using testing::HasSubstr;

/// Memory that begins on a multiple of 16 bytes, which nothing reads.
alignas(16) constinit std::array<std::uint32_t, 64> memory{};

template <class T>
kernels::GroupedProduct<T> product(const kernels::GroupedSizes& sizes) {
  auto* const at = reinterpret_cast<T*>(memory.data());
  return {.sizes = sizes, .input = at, .weight = at, .output = at};
}

std::string refusal(const Result<Launch>& launch) {
  return launch ? "taken" : launch.error().message();
}

TEST(GroupedProducts, HaveAtMostSoManyExperts) {
  EXPECT_EQ(refusal(grouped_launch(product<Bf16>({.experts = 1025, .m = 8, .n = 8, .k = 8}), {})),
            "attribute experts: expected at most 1024, got 1025");
}

TEST(GroupedProducts, AreForTensorCoresWhereTypesAndPiecesFit) {
  const kernels::GroupedSizes sizes{.experts = 2, .m = 8, .n = 16, .k = 24};
  constexpr auto by_warps = GroupedVersion::warps;
  EXPECT_EQ(refusal(grouped_launch(product<Fp16>(sizes), {}, by_warps)), "taken");
  EXPECT_THAT(refusal(grouped_launch(product<float>(sizes), {}, by_warps)),
              HasSubstr("expected 16-bit operands"));
  kernels::GroupedSizes odd = sizes;
  odd.k = 20;  // 40 bytes: no whole pieces of 16
  EXPECT_THAT(refusal(grouped_launch(product<Bf16>(odd), {}, by_warps)),
              HasSubstr("whole pieces of 16 bytes"));
  kernels::GroupedProduct<Bf16> shifted = product<Bf16>(sizes);
  ++shifted.input;
  EXPECT_THAT(refusal(grouped_launch(shifted, {}, by_warps)),
              HasSubstr("whole pieces of 16 bytes"));
  // Unasked, such sizes take the plain version.
  EXPECT_EQ(refusal(grouped_launch(product<Bf16>(odd), {})), "taken");
  EXPECT_EQ(refusal(grouped_launch(product<float>(sizes), {})), "taken");
}

TEST(GroupedProducts, OfNothingLaunchNothing) {
  const Result<Launch> launch =
      grouped_launch(product<Bf16>({.experts = 2, .m = 0, .n = 8, .k = 8}), {});
  ASSERT_TRUE(launch);
  EXPECT_FALSE(*launch);
}

TEST(GroupedProducts, ExactGradientsAreFp32) {
  auto* const at = reinterpret_cast<Bf16*>(memory.data());
  const kernels::GroupedWeightGradient<Bf16, Bf16> p{
      .sizes = {.experts = 1, .m = 1, .n = 8, .k = 8},
      .d_output = at,
      .input = at,
      .weight_grad = at,
      .pieces = {.rows = 1, .grid = kernels::GradientGrid{.exponent = 0, .limit = 1}}};
  EXPECT_THAT(refusal(grouped_launch(p, {})), HasSubstr("grouped_weight_gradient"));
}

}  // namespace
}  // namespace mfsdp::cuda
