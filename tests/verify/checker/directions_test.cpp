#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/checked.hpp"
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
using testing::HasSubstr;
using testing::IsEmpty;

/// Three blocks on two ranks: a round of two, and one of which a rank has zeros.
PlanConfig muon() {
  PlanConfig config = test::small_config(2, 3);
  config.optimizer = Optimizer::muon;
  return config;
}

/// Expects a finding of the proofs, and a refusal by the checker whatever the certificate claims.
void expect_found(const Program& program, const char* text) {
  EXPECT_THAT(rules_of(program), Contains("MF405")) << text;
  EXPECT_THAT(finding_of(program, "MF405").message, HasSubstr(text));
  EXPECT_FALSE(test::checked(program)) << text;
}

TEST(Directions, OfEveryStrategyAreRight) {
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params}) {
    PlanConfig config = muon();
    config.strategy = strategy;
    EXPECT_THAT(rules_of(EditedPlan(config).program), IsEmpty()) << to_string(strategy);
  }
}

TEST(Directions, AMatrixThatNobodyOrthogonalises) {
  EditedPlan plan(muon());
  plan.drop("optimizer", "muon.0.o_proj");
  expect_found(plan.program, "from a direction that is not this step's orthogonalised momentum");
}

TEST(Directions, AMatrixThatIsOrthogonalisedTwice) {
  EditedPlan plan(muon());
  plan.repeat("optimizer", "muon.1.q_proj");
  expect_found(plan.program, "orthogonalises a matrix twice");
}

/// Query and key are matrices of their own.
TEST(Directions, TwoMatricesAsOne) {
  EditedPlan plan(muon());
  Kernel& query = plan.kernel("optimizer", "muon.0.q_proj");
  for (Operand& operand : query.operands)
    if (operand.role == "matrix") operand.shape[0] = 12;  // 8 rows of query and 4 of key
  plan.set("optimizer", "muon.0.q_proj", "rows", 12);
  query.flops = spec_of(query)->flops(query);
  EXPECT_THAT(rules_of(plan.program), Contains("MF405"));
  EXPECT_FALSE(test::checked(plan.program));
}

TEST(Directions, MomentumThatIsNotMade) {
  EditedPlan plan(muon());
  plan.drop("optimizer", "layers.1.momentum");
  expect_found(plan.program, "not the whole momentum of this step");
}

TEST(Directions, SlicesThatAreNotDealtOut) {
  EditedPlan plan(muon());
  plan.drop("optimizer", "muon.0.deal");
  expect_found(plan.program, "not the whole momentum of this step");
}

TEST(Directions, SlicesThatDoNotComeBack) {
  EditedPlan plan(muon());
  plan.drop("optimizer", "muon.1.return");
  expect_found(plan.program, "from a direction that is not this step's orthogonalised momentum");
}

TEST(Directions, RanksWithoutABlockThatGetWhatNothingWrote) {
  EditedPlan plan(muon());
  plan.drop("optimizer", "muon.1.zero_rest");
  expect_found(plan.program,
               "distributes a buffer whose bytes after its parameter groups were not zeroed");
}

TEST(Directions, OtherBlocksThanAreDealtOut) {
  EditedPlan plan(muon());
  plan.buffer("muon.0.whole").holds->groups[1].group =
      plan.buffer("muon.1.whole").holds->groups[0].group;
  expect_found(plan.program, "distributes update directions in another way than its buffers state");
}

TEST(Directions, AnUpdateAlongAnotherBlocksDirection) {
  EditedPlan plan(muon());
  plan.operand("optimizer", "layers.0.muon", "direction").offset =
      plan.operand("optimizer", "layers.1.muon", "direction").offset;
  EXPECT_THAT(rules_of(plan.program), Contains("MF504"));
  EXPECT_FALSE(test::checked(plan.program));
}

TEST(Directions, AnUpdateByTheGradientItself) {
  EditedPlan plan(muon());
  Operand& made_of = plan.operand("optimizer", "layers.0.muon", "direction");
  made_of = plan.operand("optimizer", "layers.0.momentum", "grad");
  EXPECT_THAT(rules_of(plan.program), Contains("MF504"));
  EXPECT_FALSE(test::checked(plan.program));
}

}  // namespace
}  // namespace mfsdp
