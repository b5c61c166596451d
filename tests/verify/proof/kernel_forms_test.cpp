// Kernels whose operands, dtypes and attributes do not fit each other.
#include "verify/proof/kernel_forms.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/edit_plan.hpp"
#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using test::EditedPlan;
using test::finding_of;
using testing::HasSubstr;

PlanConfig config() { return test::small_config(2, 1); }

std::string misfit(const EditedPlan& plan) { return finding_of(plan.program, "MF007").message; }

TEST(KernelForms, AttributeThatNoOperandHas) {
  EditedPlan plan(config());
  // 16 tokens, hidden 8; qkv of 2 + 1 + 1 heads of 4 are 16 columns
  plan.set("only", "layers.0.qkv", "n", 15);
  EXPECT_THAT(misfit(plan), HasSubstr("(layers.0.qkv): gemm: operand 'weight' is [16, 8] where "
                                      "[15, 8] is expected"));
}

TEST(KernelForms, ShapesThatDoNotMeet) {
  EditedPlan plan(config());
  plan.operand("only", "layers.0.swiglu", "gate_up").shape = {16, 23};
  EXPECT_THAT(misfit(plan), HasSubstr("'gate_up' is [16, 23] where [16, 24] is expected"));
}

TEST(KernelForms, RopeTableOfAnotherLength) {
  EditedPlan plan(config());
  plan.operand("only", "layers.0.rope", "rope_table").shape = {15, 4};
  EXPECT_THAT(misfit(plan), HasSubstr("'rope_table' is [15, 4] where [16, 4] is expected"));
}

TEST(KernelForms, DtypeOfAnotherKind) {
  EditedPlan plan(config());
  plan.operand("only", "layers.0.post_norm", "rstd").dtype = DType::int32;
  EXPECT_THAT(misfit(plan), HasSubstr("operand 'rstd' is int32 in buffer 'layers.0.rstd2'"));
}

TEST(KernelForms, SumWhereNothingWas) {
  EditedPlan plan(config());
  plan.set("only", "layers.0.down", "beta", 1);
  EXPECT_THAT(misfit(plan), HasSubstr("beta is 1, but operand 'output' is write"));
}

TEST(KernelForms, ProductOfAnotherKind) {
  EditedPlan plan(config());
  plan.set("only", "layers.0.attention_out", "kind", 1);
  EXPECT_THAT(misfit(plan), HasSubstr("lacks operand 'd_output'"));
  plan.set("only", "layers.0.attention_out", "kind", 3);
  EXPECT_THAT(misfit(plan), HasSubstr("is no product of its kind's three"));
}

TEST(KernelForms, HeadsAtOtherColumns) {
  EditedPlan plan(config());
  plan.operand("only", "layers.0.attention", "key").offset += 2;
  // queries take 2 heads x 4 x 2 bytes of a row of 4 heads x 4 x 2 bytes
  EXPECT_THAT(misfit(plan),
              HasSubstr("'key' begins at byte 18 of a row of 32, where 16 is expected"));
}

TEST(KernelForms, ScaleOfWideElements) {
  EditedPlan plan(config());
  plan.operand("only", "layers.0.down", "weight").scale =
      ScalarRef{.buffer = plan.buffer("report").id, .offset = 0};
  EXPECT_THAT(misfit(plan), HasSubstr("operand 'weight' has a scale"));
  EditedPlan update(config());
  update.operand("optimizer", "layers.0.adamw", "step_block").scale =
      ScalarRef{.buffer = update.buffer("report").id, .offset = 0};
  EXPECT_THAT(misfit(update), HasSubstr("operand 'step_block' has a scale"));
}

TEST(KernelForms, CastOfMoreThanThereIs) {
  EditedPlan plan(config());
  plan.operand("only", "layers.0.accumulate", "input").shape = {1};
  EXPECT_THAT(misfit(plan), HasSubstr("accumulate: 1 elements go to"));
}

TEST(KernelForms, NotTheConfiguredAlgorithm) {
  EditedPlan plan(config());
  plan.set("only", "layers.0.attention", "deterministic", 1);
  EXPECT_THAT(misfit(plan), HasSubstr("attribute 'deterministic' is not as configured"));
}

}  // namespace
}  // namespace mfsdp
