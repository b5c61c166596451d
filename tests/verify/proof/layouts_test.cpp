#include "verify/proof/ledger/layouts.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "tests/support/configurations.hpp"
#include "tests/support/edit_plan.hpp"
#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using test::EditedPlan;
using test::finding_of;
using test::rules_of;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

/// Rank 4 of 2 x 3 is (1, 1): the fifth of six parts, in whatever order a communicator lists its axes.
TEST(Layouts, PartsOfSeveralAxesAreInTheOrderOfRanks) {
  const Mesh mesh = data_parallel_mesh(2, 3);
  Region wanted{.begin = 5, .strides = {}, .count = 2};
  wanted.strides[Axis::dp_outer] = 6;
  wanted.strides[Axis::dp_shard] = 2;
  for (const std::vector<Axis>& axes :
       {std::vector{Axis::dp_outer, Axis::dp_shard}, std::vector{Axis::dp_shard, Axis::dp_outer}})
    EXPECT_EQ(part_of({.begin = 5, .strides = {}, .count = 12}, axes, mesh), wanted);
}

TEST(Layouts, LevelsAndAtoms) {
  PlanConfig config = test::small_config(4);
  config.mesh.resize(Axis::dp_outer, 2);
  config.outer_strategy = Strategy::optim;
  const EditedPlan plan(config);
  FindingList findings(10);
  const ProgramIndex index(plan.program);
  const Layouts layouts(plan.program, index, findings);
  EXPECT_TRUE(findings.list().empty());
  for (std::uint32_t g = 0; g < layouts.groups.size(); ++g) {
    const GroupLayout& layout = layouts.groups[g];
    const std::int64_t all = layout.group->elements;
    EXPECT_EQ(layout.slices[0], (Region{.count = all}));
    Region shard{.count = all / 4};
    shard.strides[Axis::dp_shard] = all / 4;
    EXPECT_EQ(layout.slices[1], shard);
    Region part = shard;
    part.strides[Axis::dp_outer] = part.count = all / 8;
    EXPECT_EQ(layout.slices[2], part);
    ASSERT_EQ(layout.levels(), 3);
    for (int level = 0; level < layout.levels(); ++level)
      EXPECT_EQ(layout.level_of(layout.slices[static_cast<std::size_t>(level)]), level);
    EXPECT_EQ(part_of(layout.slices[0], Axis::dp_shard, config.mesh), layout.slices[1]);
    EXPECT_EQ(part_of(layout.slices[1], Axis::dp_outer, config.mesh), layout.slices[2]);
    std::int64_t covered = 0;
    for (const Atom& atom : layout.atoms) {
      EXPECT_EQ(atom.begin, covered);
      covered = atom.end;
    }
    EXPECT_EQ(covered, all);
    const Atom& first = layout.atoms[0];
    EXPECT_EQ(layouts.atoms_of(g, {.count = first.end})->last, 1U);
    EXPECT_FALSE(layouts.atoms_of(g, {.begin = 1, .count = first.end - 1}).has_value());
    EXPECT_FALSE(layouts.atoms_of(g, {.count = all + 1}).has_value());
  }
}

TEST(Layouts, OneRankHasOneLevel) {
  const EditedPlan plan(test::small_config(1));
  FindingList findings(10);
  const ProgramIndex index(plan.program);
  const Layouts layouts(plan.program, index, findings);
  for (const GroupLayout& layout : layouts.groups)
    for (const Region& slice : layout.slices) EXPECT_EQ(layout.level_of(slice), 0);
}

TEST(Layouts, ParametersDoNotTileTheirGroup) {
  EditedPlan overlap(test::small_config(4));
  Group& group = overlap.program.groups[1];
  group.parameters[1].offset = group.parameters[0].offset;
  EXPECT_THAT(rules_of(overlap.program), ElementsAre("MF501"));
  EditedPlan outside(test::small_config(4));
  outside.program.groups[1].parameters[0].offset = outside.program.groups[1].elements - 1;
  EXPECT_THAT(rules_of(outside.program), ElementsAre("MF501"));
  EXPECT_THAT(finding_of(outside.program, "MF501").message, HasSubstr("group 'layers.0'"));
  EditedPlan uneven(test::small_config(4));
  ++uneven.program.groups[1].elements;
  EXPECT_THAT(rules_of(uneven.program), ElementsAre("MF501"));
  EXPECT_THAT(finding_of(uneven.program, "MF501").message, HasSubstr("do not make 4 equal shards"));
}

TEST(Layouts, GroupsOfAUnitOverlap) {
  PlanConfig config = test::small_config(4);
  config.frozen = {"layernorm", "mlp"};
  EditedPlan plan(config);
  plan.buffer("layers.0.weights.0").holds->groups[1].offset -= 256;
  EXPECT_THAT(rules_of(plan.program), Contains("MF502"));
  EditedPlan shared(config);
  const auto second = std::ranges::find(shared.program.groups, false, &Group::requires_grad);
  second->parameters[0].name = (second - 1)->parameters[0].name;
  EXPECT_THAT(rules_of(shared.program), ElementsAre("MF502"));
}

TEST(Layouts, BufferHoldsNoSlice) {
  EditedPlan plan(test::small_config(4));
  Buffer& buffer = plan.buffer("layers.0.exp_avg");
  buffer.size = Bytes(buffer.size.value + 4);
  EXPECT_THAT(rules_of(plan.program), Contains("MF503"));
}

TEST(Layouts, BufferSaysAnotherThanItHolds) {
  const auto rules_after = [](const std::function<void(EditedPlan&)>& edit) {
    EditedPlan plan(test::small_config(4));
    edit(plan);
    return rules_of(plan.program);
  };
  EXPECT_THAT(
      rules_after([](EditedPlan& p) { p.buffer("layers.0.main_grad").holds->placement.clear(); }),
      Contains("MF503"));
  EXPECT_THAT(rules_after([](EditedPlan& p) { p.program.groups[1].state.clear(); }),
              Contains("MF503"));
  EXPECT_THAT(rules_after([](EditedPlan& p) {
                p.buffer("layers.0.main_grad").holds->placement[0].kind = PlacementKind::partial;
              }),
              Contains("MF503"));
}

TEST(Layouts, GroupSumsOverOtherAxes) {
  EditedPlan plan(test::small_config(4));
  plan.program.groups[1].reduce.clear();
  EXPECT_THAT(rules_of(plan.program), Contains("MF303"));
}

/// Nothing is summed over an axis of one rank, whether a group names it or not.
TEST(Layouts, AnAxisOfOneRankMeansNothing) {
  EditedPlan plan(test::small_config(4));
  plan.program.config.mesh.dense.insert(plan.program.config.mesh.dense.begin(),
                                        {.axis = Axis::cp, .size = 1});
  EXPECT_THAT(rules_of(plan.program), testing::IsEmpty());
  plan.program.groups[1].reduce.push_back(Axis::cp);
  EXPECT_THAT(rules_of(plan.program), testing::IsEmpty());
}

TEST(Layouts, BuffersAreOfTheConfiguredDtype) {
  EditedPlan plan(test::small_config());
  plan.program.config.main_dtype = DType::bf16;
  EXPECT_THAT(test::finding_of(plan.program, "MF502").message,
              testing::HasSubstr("main_weight' has dtype fp32; the configuration has bf16"));
}

TEST(Layouts, GroupsAreOfTheConfiguredDtype) {
  test::EditedPlan plan(test::small_config());
  plan.program.groups[1].dtype = DType::fp16;
  EXPECT_EQ(test::finding_of(plan.program, "MF502").message,
            "group 'layers.0' has dtype fp16; the configuration has bf16");
}

}  // namespace
}  // namespace mfsdp
