#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/configurations.hpp"
#include "tests/support/edit_plan.hpp"
#include "tests/support/plan_builder.hpp"
#include "verify/proof/ledger/checks.hpp"

namespace mfsdp {
namespace {

using test::EditedPlan;
using test::finding_of;
using test::rules_of;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

PlanConfig sharded_by(Strategy strategy) {
  PlanConfig config = test::small_config(4);
  config.strategy = strategy;
  return config;
}

TEST(Weights, RefreshIsLeftOut) {
  EditedPlan plan(sharded_by(Strategy::optim));
  plan.drop("optimizer", "layers.0.refresh");
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF401"));
  const Finding finding = finding_of(plan.program, "MF401");
  EXPECT_EQ(finding.places[0].step, 1);
  EXPECT_THAT(finding.message, HasSubstr("some shards are after another number of updates"));

  PlanConfig outer = sharded_by(Strategy::optim_grads_params);
  outer.mesh.resize(Axis::dp_outer, 2);
  outer.outer_strategy = Strategy::optim;
  EditedPlan hybrid(outer);
  EXPECT_THAT(rules_of(hybrid.program), IsEmpty());
  hybrid.drop("optimizer", "layers.1.refresh");
  EXPECT_THAT(rules_of(hybrid.program), ElementsAre("MF401"));
}

/// Training alone does not see it: an evaluation, a save or an export between steps would.
TEST(Weights, RefreshIsPutOffToTheNextStep) {
  EditedPlan plan(sharded_by(Strategy::optim));
  const Op refresh = plan.op("optimizer", "layers.0.refresh");
  plan.drop("optimizer", "layers.0.refresh");
  auto& ops = plan.program.plans[0].segments[0].ops;
  ops.insert(ops.begin(), refresh);
  EXPECT_THAT(finding_of(plan.program, "MF401").message,
              HasSubstr("ends a step in which buffer 'layers.0.model_weight' holds weights of "
                        "'layers.0' of which some shards are after another number of updates; "
                        "expected them after 2 updates"));
}

TEST(Weights, UpdateIsLeftOutOrRunsTwice) {
  for (const Strategy strategy : {Strategy::no_shard, Strategy::optim_grads_params}) {
    EditedPlan none(sharded_by(strategy));
    none.drop("optimizer", "layers.0.adamw");
    EXPECT_THAT(rules_of(none.program), ElementsAre("MF401"));
    EXPECT_THAT(finding_of(none.program, "MF401").message,
                HasSubstr("after 0 updates; expected the weights after 1 updates"));
    EditedPlan twice(sharded_by(strategy));
    twice.repeat("optimizer", "layers.0.adamw");
    EXPECT_THAT(rules_of(twice.program), ElementsAre("MF401"));
    EXPECT_THAT(finding_of(twice.program, "MF401").message, HasSubstr("after 2 updates"));
  }
}

TEST(Weights, AreNotGathered) {
  EditedPlan plan(sharded_by(Strategy::optim_grads_params));
  plan.drop("only", "layers.0.all_gather");
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF402"));
  EXPECT_THAT(finding_of(plan.program, "MF402").message, HasSubstr("of 'layers.0'"));
}

TEST(Weights, AreGatheredFromAnotherUnit) {
  PlanConfig config = sharded_by(Strategy::optim_grads_params);
  config.microbatches = 2;
  EditedPlan plan(config);
  plan.collective("last", "layers.0.all_gather").input.buffer =
      plan.buffer("layers.1.model_weight").id;
  // The kernels then read bytes that were not written there.
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF402", "MF403", "MF504"));
  EXPECT_THAT(finding_of(plan.program, "MF403").message, HasSubstr("from 'layers.1'"));
}

TEST(Weights, KernelReadsAnotherPlace) {
  EditedPlan beside(sharded_by(Strategy::no_shard));
  beside.operand("only", "layers.0.qkv", "weight").offset += 2;
  // A parameter that is used elsewhere lacks a use, so that its gradient is one too many.
  EXPECT_TRUE(rules_of(beside.program).contains("MF403"));
  EditedPlan unit(sharded_by(Strategy::no_shard));
  unit.operand("only", "layers.0.down.dgrad", "weight").buffer =
      unit.buffer("layers.1.model_weight").id;
  EXPECT_THAT(rules_of(unit.program), ElementsAre("MF403"));
}

TEST(Weights, WritingNothingSpoilsNothing) {
  EditedPlan plan(sharded_by(Strategy::optim_grads_params));
  plan.repeat("optimizer", "layers.0.adamw");
  for (Operand& operand : plan.kernel("optimizer", "layers.0.adamw").operands)
    if (operand.role != "step_block" && operand.role != "loss" && operand.role != "norm")
      operand.shape = {0};
  plan.set("optimizer", "layers.0.adamw", "elements", 0);
  // An empty entry in the list of updates; the one beside it updates the weights once.
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF504"));
}

TEST(Weights, SecondGatherIsANote) {
  EditedPlan plan(sharded_by(Strategy::optim_grads_params));
  plan.repeat("only", "layers.0.all_gather");
  EXPECT_THAT(rules_of(plan.program), IsEmpty());
  EXPECT_THAT(
      finding_of(plan.program, "MF404").message,
      HasSubstr("gathers 'layers.0', which buffer 'layers.0.weights.0' still holds gathered"));
}

TEST(Weights, FrozenOnesStayAsTheyAre) {
  PlanConfig config = sharded_by(Strategy::optim);
  config.frozen = {"layers.0."};
  EXPECT_THAT(rules_of(EditedPlan(config).program), IsEmpty());
}

}  // namespace
}  // namespace mfsdp
