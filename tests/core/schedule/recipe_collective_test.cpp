// Recipes are lists of ops: what the planner makes of a collective and of a tensor that is cut.
#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "core/plan/check.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

constexpr Axis kAxis = Axis::dp_shard;

/// A block that, before its own kernels, gathers its rank's quarter of a vector into the whole.
UnitRecipe gathering_block(const PlanConfig& config, const BlockKind& kind) {
  UnitRecipe recipe = block_recipe(config, kind);
  const std::int64_t whole = 1024;
  const std::int64_t part = whole / config.mesh.size(kAxis);
  recipe.tensors.push_back({.name = "part",
                            .dtype = DType::fp32,
                            .elements = whole,
                            .placement = {{.axis = kAxis, .kind = PlacementKind::flat}},
                            .slot_class = "part"});
  recipe.tensors.push_back(
      {.name = "whole", .dtype = DType::fp32, .elements = whole, .slot_class = "whole"});
  RecipeOp op{
      .name = "gather",
      .operands = {{.role = "input", .name = "part", .dtype = DType::fp32, .shape = {part}},
                   {.role = "output",
                    .access = Access::write,
                    .name = "whole",
                    .dtype = DType::fp32,
                    .shape = {whole}}},
      .body = RecipeCollective{.kind = CollectiveKind::all_gather, .axis = kAxis, .count = part}};
  recipe.forward.insert(recipe.forward.begin(), std::move(op));
  return recipe;
}

FamilyRecipe gathering_recipe() {
  FamilyRecipe recipe = own_recipe(Family::llama);
  recipe.block = gathering_block;
  return recipe;
}

Program build(const FamilyRecipe& recipe) {
  auto program = build_program(test::small_config(4), {}, nullptr, &recipe);
  if (!program) throw std::runtime_error(program.error().message());
  return std::move(*program);
}

TEST(RecipeCollective, StandsWhereTheRecipeHasIt) {
  const Program program = build(gathering_recipe());
  const std::vector<Op>& ops = program.plans[0].segments[0].ops;
  const auto found = std::ranges::find(ops, "layers.0.gather", &Op::name);
  ASSERT_NE(found, ops.end());
  const auto& gather = std::get<Collective>(found->body);
  EXPECT_EQ(program.streams[found->stream.value].role, StreamRole::compute);
  const Communicator& over = program.communicators[gather.communicator.value];
  EXPECT_EQ(over.purpose, "activations.dp_shard");
  EXPECT_EQ(over.axes, std::vector{kAxis});
  EXPECT_EQ(over.size, 4);
  EXPECT_EQ(gather.count, 256);
  EXPECT_EQ(gather.dtype, DType::fp32);
  EXPECT_LT(found, std::ranges::find(ops, "layers.0.input_norm", &Op::name));
}

TEST(RecipeCollective, ACutTensorHasTheBytesOfItsPart) {
  const Program program = build(gathering_recipe());
  const auto size = [&](const char* name) {
    return std::ranges::find(program.buffers, name, &Buffer::name)->size;
  };
  EXPECT_EQ(size("layers.0.part"), Bytes(1024));  // 1024 / 4 ranks of 4 bytes
  EXPECT_EQ(size("layers.0.whole"), Bytes(4096));
}

TEST(RecipeCollective, IsWellFormedInTrainAndEval) {
  const Program program = build(gathering_recipe());
  EXPECT_TRUE(check_structure(program));
  for (const Plan& plan : program.plans) {
    std::int64_t gathers = 0;
    for (const Op& op : plan.segments[0].ops)
      if (op.name.ends_with(".gather")) ++gathers;
    EXPECT_EQ(gathers, program.config.model.layers) << plan.name;
  }
}

TEST(RecipeCollective, OneCommunicatorServesAllBlocks) {
  const Program plain = build(own_recipe(Family::llama));
  const Program program = build(gathering_recipe());
  EXPECT_EQ(program.communicators.size(), plain.communicators.size() + 1);
}

}  // namespace
}  // namespace mfsdp
