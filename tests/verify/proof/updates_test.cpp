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
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr const char* kUpdate = "layers.0.adamw";

TEST(Updates, NumberOfElements) {
  EditedPlan plan(test::small_config(4));
  plan.set("optimizer", kUpdate, "elements", 1);
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF504"));
  EXPECT_THAT(finding_of(plan.program, "MF504").message, HasSubstr("states 1 elements, but"));
}

TEST(Updates, EmptyGradient) {
  EditedPlan plan(test::small_config(4));
  plan.operand("optimizer", kUpdate, "grad").shape = {0};
  EXPECT_THAT(rules_of(plan.program), Contains("MF504"));
  EXPECT_THAT(finding_of(plan.program, "MF504").message, HasSubstr("reads an empty gradient"));
}

TEST(Updates, StateOfAnotherUnit) {
  EditedPlan plan(test::small_config(4));
  plan.operand("optimizer", kUpdate, "exp_avg").buffer = plan.buffer("layers.1.exp_avg").id;
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF504"));
  EXPECT_THAT(finding_of(plan.program, "MF504").message,
              HasSubstr("of 'layers.1', but its gradient is at"));
}

TEST(Updates, OneBufferForBothMoments) {
  EditedPlan plan(test::small_config(4));
  plan.operand("optimizer", kUpdate, "exp_avg").buffer = plan.buffer("layers.0.exp_avg_sq").id;
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF007", "MF504"));
}

TEST(Updates, AnotherRanksSlice) {
  PlanConfig config = test::small_config(4);
  config.strategy = Strategy::optim;
  EditedPlan weight(config);
  weight.operand("optimizer", kUpdate, "weight").rank_strides.clear();
  EXPECT_THAT(rules_of(weight.program), Contains("MF504"));
  EditedPlan gradient(config);
  gradient.operand("optimizer", kUpdate, "grad").rank_strides.clear();
  EXPECT_THAT(rules_of(gradient.program), ElementsAre("MF504"));
  EXPECT_THAT(finding_of(gradient.program, "MF504").message,
              HasSubstr("which is not a shard of it"));
}

TEST(Updates, StatesAreThoseThatTheOptimizerKeeps) {
  EditedPlan dropped(test::small_config(4));
  auto& operands = dropped.kernel("optimizer", kUpdate).operands;
  std::erase_if(operands, [](const Operand& operand) { return operand.role == "exp_avg_sq"; });
  EXPECT_THAT(rules_of(dropped.program), ElementsAre("MF504"));
  EXPECT_THAT(finding_of(dropped.program, "MF504").message,
              HasSubstr("has no operand 'exp_avg_sq', which is a state of optimizer adamw"));

  EditedPlan other(test::small_config(4));
  other.program.config.optimizer = Optimizer::sgd;
  for (Group& group : other.program.groups) group.optimizer = Optimizer::sgd;
  EXPECT_THAT(rules_of(other.program), ElementsAre("MF504"));
  EXPECT_THAT(finding_of(other.program, "MF504").message,
              HasSubstr("has an operand 'exp_avg', which is not a state of optimizer sgd"));
}

PlanConfig in_bytes() {
  PlanConfig config = test::small_config(4);
  config.state_dtype = StateDtype::blockwise8;
  return config;
}

TEST(Updates, StatesAreOfTheTypeThatTheyAreKeptIn) {
  EditedPlan plan(test::small_config(4));
  plan.program.config.state_dtype = StateDtype::bf16;
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF504"));
  EXPECT_THAT(finding_of(plan.program, "MF504").message,
              HasSubstr("has operand 'exp_avg' in fp32, but that state is kept in bf16"));
}

TEST(Updates, ScalesOfTheOtherMoment) {
  EditedPlan plan(in_bytes());
  EXPECT_THAT(rules_of(plan.program), testing::IsEmpty());
  std::swap(plan.operand("optimizer", kUpdate, "exp_avg_scale").buffer,
            plan.operand("optimizer", kUpdate, "exp_avg_sq_scale").buffer);
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF504"));
  EXPECT_THAT(
      finding_of(plan.program, "MF504").message,
      HasSubstr(
          "has operand 'exp_avg_scale' in buffer 'layers.0.exp_avg_sq_scale', which the plan does "
          "not reserve for it"));
}

TEST(Updates, ScalesOfAnotherUnit) {
  EditedPlan plan(in_bytes());
  plan.operand("optimizer", kUpdate, "exp_avg_scale").buffer =
      plan.buffer("layers.1.exp_avg_scale").id;
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF504"));
}

TEST(Updates, ScalesOfSomeBlocks) {
  EditedPlan plan(in_bytes());
  Operand& scales = plan.operand("optimizer", kUpdate, "exp_avg_scale");
  ASSERT_GT(scales.shape.at(0), 1);
  scales.shape.at(0) -= 1;
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF504"));
}

TEST(Updates, ScalesThatAreLeftOut) {
  EditedPlan plan(in_bytes());
  std::erase_if(plan.kernel("optimizer", kUpdate).operands,
                [](const Operand& operand) { return operand.role == "exp_avg_scale"; });
  EXPECT_THAT(rules_of(plan.program), ElementsAre("MF504"));
  EXPECT_THAT(finding_of(plan.program, "MF504").message,
              HasSubstr("has no operand 'exp_avg_scale', which is a state of optimizer adamw"));
}

TEST(Updates, EvaluatingUpdatesNothing) {
  test::EditedPlan plan(test::small_config());
  Op update = plan.op("optimizer", "layers.0.adamw");
  update.id = OpId(1'000'000);
  plan.program.plans[1].segments[0].ops.push_back(update);
  EXPECT_THAT(test::finding_of(plan.program, "MF504").message,
              testing::HasSubstr("updates weights in a plan of role eval"));
}

}  // namespace
}  // namespace mfsdp
