// The division of a weight gradient under --exact-sums. No GEMM is run, because that needs a GPU.
#include "gpu_backend/cuda/exact_gemm.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

namespace mfsdp::cuda {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Addresses that are never read, on multiples of 128 bytes.
template <class T>
T* place(std::uintptr_t address) {
  return reinterpret_cast<T*>(address);
}

/// The gradient of a linear layer of these sizes, with two pieces of 64 tokens.
kernels::Gemm<Bf16, float> weight_gradient(std::int64_t out_features, std::int64_t in_features,
                                           std::size_t workspace_bytes) {
  return {.rows = out_features,
          .cols = in_features,
          .inner = 128,
          .a = {.data = place<const Bf16>(1 << 12), .row = out_features, .transposed = true},
          .b = {.data = place<const Bf16>(1 << 13), .row = in_features},
          .c = place<float>(1 << 14),
          .workspace = {place<std::byte>(1 << 20), workspace_bytes},
          .pieces = {.rows = 64, .grid = kernels::GradientGrid{.exponent = 0, .limit = 1}}};
}

struct Tile {
  std::int64_t row;
  std::int64_t rows;

  friend bool operator==(const Tile&, const Tile&) = default;
};

std::vector<Tile> tiles_of(const kernels::Gemm<Bf16, float>& g) {
  std::vector<Tile> tiles;
  const auto outcome =
      for_each_exact_tile(g, [&](const GemmShape& shape, std::int64_t row) -> Result<void> {
        tiles.push_back({row, shape.rows});
        return {};
      });
  EXPECT_TRUE(outcome) << outcome.error().message();
  return tiles;
}

TEST(ExactGemm, AResultThatFitsHalfTheWorkspaceIsOneTile) {
  // 300 rows of 256 fp32 are 300 KiB.
  EXPECT_THAT(tiles_of(weight_gradient(300, 256, 600 << 10)), ElementsAre(Tile{0, 300}));
}

TEST(ExactGemm, OthersAreTilesOfWholeHundredsAndTwentyEights) {
  // 150 KiB hold 150 rows, of which 128 are taken.
  EXPECT_THAT(tiles_of(weight_gradient(300, 256, 300 << 10)),
              ElementsAre(Tile{0, 128}, Tile{128, 128}, Tile{256, 44}));
}

TEST(ExactGemm, AWorkspaceThatIsTooSmallIsAnError) {
  const auto rows = exact_tile_rows(weight_gradient(300, 256, 255 << 10));
  ASSERT_FALSE(rows);
  // Twice 128 rows of 1 KiB.
  EXPECT_THAT(rows.error().message(), HasSubstr("at least 262144 bytes, got 261120"));
}

TEST(ExactGemm, ATileIsTheProductOfAPieceAndLiesInTheWorkspace) {
  const auto g = weight_gradient(300, 256, 300 << 10);
  const GemmShape shape = exact_tile_shape(g, 128);
  EXPECT_EQ(shape, (GemmShape{.rows = 128,
                              .cols = 256,
                              .inner = 64,
                              .a_row = 300,
                              .b_row = 256,
                              .a_transposed = true,
                              .operands = DType::bf16,
                              .result = DType::fp32,
                              .alignment = 128}));
  const GemmMemory memory = exact_tile_memory(g, 64, 128);
  EXPECT_EQ(memory.a, g.a.data + 64 * 300 + 128);
  EXPECT_EQ(memory.b, g.b.data + 64 * 256);
  EXPECT_EQ(memory.c, g.workspace.data() + (150 << 10));
  EXPECT_EQ(memory.workspace.size(), 150U << 10);
}

}  // namespace
}  // namespace mfsdp::cuda
