// Kernels whose operands, dtypes and attributes do not fit each other.
#include "verify/proof/values/kernels.hpp"

#include <fmt/format.h>
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
  EXPECT_THAT(
      misfit(plan),
      HasSubstr("(layers.0.qkv): gemm: operand 'weight' has shape [16, 8]; expected [15, 8]"));
}

TEST(KernelForms, ShapesThatDoNotMeet) {
  EditedPlan plan(config());
  plan.operand("only", "layers.0.swiglu", "gate_up").shape = {16, 23};
  EXPECT_THAT(misfit(plan), HasSubstr("'gate_up' has shape [16, 23]; expected [16, 24]"));
}

TEST(KernelForms, RopeTableOfAnotherLength) {
  EditedPlan plan(config());
  plan.operand("only", "layers.0.rope", "rope_table").shape = {15, 4};
  EXPECT_THAT(misfit(plan), HasSubstr("'rope_table' has shape [15, 4]; expected [16, 4]"));
}

TEST(KernelForms, DtypeOfAnotherKind) {
  EditedPlan plan(config());
  plan.operand("only", "layers.0.post_norm", "rstd").dtype = DType::int32;
  EXPECT_THAT(misfit(plan), HasSubstr("operand 'rstd' has dtype int32 in buffer 'layers.0.rstd2'"));
}

TEST(KernelForms, SumWhereNothingWas) {
  EditedPlan plan(config());
  plan.set("only", "layers.0.down", "beta", 1);
  plan.operand("only", "layers.0.down", "output").access = Access::write;
  EXPECT_THAT(misfit(plan), HasSubstr("'output' has access write; expected read_write"));
  EditedPlan gradient(config());
  gradient.operand("only", "layers.0.down.wgrad", "weight_grad").access = Access::read_write;
  EXPECT_THAT(misfit(gradient), HasSubstr("'weight_grad' has access read_write; expected write"));
}

TEST(KernelForms, AccessThatTheKernelDoesNotHave) {
  EditedPlan expanded(config());
  expanded.operand("only", "layers.0.swiglu", "gate_up").access = Access::write;
  EXPECT_THAT(misfit(expanded), HasSubstr("operand 'gate_up' has access write; expected read"));
  EditedPlan state(config());
  state.operand("optimizer", "layers.0.adamw", "exp_avg").access = Access::read;
  EXPECT_THAT(misfit(state), HasSubstr("operand 'exp_avg' has access read; expected read_write"));
  EditedPlan gathered(config());
  gathered.collective("only", "layers.0.all_gather").output.access = Access::read;
  EXPECT_THAT(
      misfit(gathered),
      HasSubstr("has operand 'output' with access read; expected 'output' with access write"));
}

TEST(KernelForms, GivenTwice) {
  EditedPlan operand(config());
  auto& operands = operand.kernel("only", "layers.0.swiglu").operands;
  operands.push_back(operands.back());
  EXPECT_THAT(misfit(operand), HasSubstr("has operand 'product' 2 times; expected 1"));
  EditedPlan attribute(config());
  auto& attributes = attribute.kernel("only", "layers.0.swiglu").attributes;
  attributes.push_back(attributes.back());
  EXPECT_THAT(misfit(attribute), HasSubstr("has attribute 'rows' after 'rows'"));
}

TEST(KernelForms, WhatIsNotOfItsKind) {
  EditedPlan operand(config());
  operand.operand("only", "layers.0.swiglu", "product").role = "tokens";
  EXPECT_THAT(misfit(operand), HasSubstr("lacks operand 'product'"));
  EditedPlan attribute(config());
  attribute.kernel("only", "layers.0.swiglu").attributes.emplace_back("seq", 16);
  EXPECT_THAT(misfit(attribute), HasSubstr("has attribute 'seq', which its kind does not have"));
  EditedPlan beta(config());
  beta.set("only", "layers.0.down", "beta", 2);
  EXPECT_THAT(misfit(beta), HasSubstr("has attribute 'beta' of neither 0 nor 1"));
}

TEST(KernelForms, BytesInABufferOfNumbers) {
  EditedPlan plan(config());
  plan.buffer("layers.0.rstd2").dtype = DType::uint8;
  EXPECT_THAT(misfit(plan), HasSubstr("operand 'rstd' has dtype fp32 in buffer 'layers.0.rstd2'"));
}

TEST(KernelForms, ProductOfAnotherKind) {
  EditedPlan plan(config());
  plan.set("only", "layers.0.attention_out", "kind", 1);
  EXPECT_THAT(misfit(plan), HasSubstr("lacks operand 'd_output'"));
  plan.set("only", "layers.0.attention_out", "kind", 3);
  EXPECT_THAT(misfit(plan), HasSubstr("is a GEMM of an unknown kind"));
}

TEST(KernelForms, HeadsAtOtherColumns) {
  EditedPlan plan(config());
  plan.operand("only", "layers.0.attention", "key").offset += 2;
  // queries take 2 heads x 4 x 2 bytes of a row of 4 heads x 4 x 2 bytes
  EXPECT_THAT(misfit(plan),
              HasSubstr("'key' begins at byte 18 of a row of 32 bytes; expected byte 16"));
}

TEST(KernelForms, AttributesOfTheModelAndTheConfiguration) {
  EditedPlan epsilon(config());
  for (Attribute& a : epsilon.kernel("only", "layers.0.post_norm").attributes)
    if (a.name == "epsilon") ++a.value.den;
  EXPECT_THAT(misfit(epsilon), HasSubstr("attribute 'epsilon' is "));
  EditedPlan limit(config());
  limit.set("optimizer", "norm.finish", "limit", 2);
  EXPECT_THAT(misfit(limit), HasSubstr("attribute 'limit' is 2; expected "));
  PlanConfig qk_norm = config();
  qk_norm.model.qk_norm = true;
  EditedPlan heads(qk_norm);
  heads.set("only", "layers.0.qk_norm.backward", "query_heads", 1);
  EXPECT_THAT(misfit(heads), HasSubstr("attribute 'query_heads' is 1; expected "));
}

TEST(KernelForms, HeadsInNarrowerRowsThanTheirBuffer) {
  EditedPlan plan(config());
  plan.operand("only", "layers.0.rope", "query_key").strides.clear();
  EXPECT_THAT(misfit(plan), HasSubstr("operand 'query_key' has rows of "));
}

TEST(KernelForms, CopiesStateBothEnds) {
  EditedPlan plan(config());
  for (Op& op : plan.program.plans[0].segments[0].ops)
    if (auto* copy = std::get_if<Copy>(&op.body)) copy->input.role.clear();
  EXPECT_THAT(misfit(plan),
              HasSubstr("has operand '' with access read; expected 'input' with access read"));
}

TEST(KernelForms, ComputedAgainBeforeItWasComputed) {
  PlanConfig recompute = config();
  recompute.recompute = {.kind = Recompute::full};
  EXPECT_EQ(misfit(EditedPlan(recompute)), "");
  EditedPlan plan(config());
  plan.op("only", "layers.0.down").phase = Phase::recompute;
  plan.drop("only", "layers.0.down.wgrad");
  EXPECT_THAT(misfit(plan), HasSubstr("(layers.0.down): is marked as recomputation, but"));
}

TEST(KernelForms, WorkspaceOfNoSize) {
  EditedPlan plan(config());
  plan.operand("only", "layers.0.down", "workspace").shape.clear();
  EXPECT_THAT(misfit(plan), HasSubstr("operand 'workspace' is uint8 []; expected"));
}

TEST(KernelForms, WorkspaceThatBeginsAtAnOddByte) {
  EditedPlan plan(config());
  Operand& workspace = plan.operand("only", "layers.0.down", "workspace");
  workspace.shape = {workspace.shape.front() - kWorkspaceAlignment};
  workspace.offset = kWorkspaceAlignment;
  EXPECT_EQ(misfit(plan), "");
  workspace.offset = 1;
  EXPECT_THAT(misfit(plan), HasSubstr("operand 'workspace' begins at byte 1 of its buffer"));
}

TEST(KernelForms, ExactSumsOfAnAccumulation) {
  PlanConfig exact = config();
  exact.microbatches = 2;
  exact.exact_sums = true;
  EditedPlan plan(exact);
  plan.set("last", "layers.0.accumulate", "grid_exponent", 0);
  EXPECT_THAT(misfit(plan), HasSubstr("needs attribute 'grid_exponent' of "));
}

TEST(KernelForms, CastOfMoreThanThereIs) {
  PlanConfig two = config();
  two.microbatches = 2;
  EditedPlan plan(two);
  plan.operand("last", "layers.0.accumulate", "input").shape = {1};
  EXPECT_THAT(misfit(plan), HasSubstr("accumulate: has an input of 1 and an output of"));
}

/// Expects a finding if the kernel's workspace is a byte smaller than `least`, and none if it is
/// `least`.
void expect_least_workspace(const PlanConfig& config, const std::string& kernel,
                            std::int64_t least) {
  EditedPlan plan(config);
  Operand& workspace = plan.operand("only", kernel, "workspace");
  workspace.shape = {least};
  EXPECT_EQ(misfit(plan), "") << kernel;
  workspace.shape = {least - 1};
  EXPECT_THAT(misfit(plan),
              HasSubstr(fmt::format("operand 'workspace' is uint8 [{}]; expected at least {} bytes",
                                    least - 1, least)));
  std::erase_if(plan.kernel("only", kernel).operands,
                [](const Operand& operand) { return operand.role == "workspace"; });
  EXPECT_THAT(misfit(plan),
              HasSubstr(fmt::format("lacks operand 'workspace' of at least {} bytes", least)));
}

TEST(KernelForms, LeastWorkspace) {
  expect_least_workspace(config(), "layers.0.attention", 256);
  // 16 tokens of 2 heads of 4 over one key head, in bf16: 2 * 256 bytes
  expect_least_workspace(config(), "layers.0.attention.backward", 256 + 2 * 256);
  // two doubles of each of 1024 blocks, and 8 bytes to count them
  expect_least_workspace(config(), "head.chunk0.cross_entropy", 16392);
  expect_least_workspace(config(), "layers.0.norm_partial", 16392);
}

TEST(KernelForms, LeastWorkspaceOfDeterministicAttention) {
  PlanConfig in_order = config();
  in_order.deterministic = true;
  // scores of 2 heads, 16 tokens squared as 64 by 128, in bf16
  expect_least_workspace(in_order, "layers.0.attention.backward", 256 + 2 * 256 + 2 * 64 * 128 * 2);
}

TEST(KernelForms, NotTheConfiguredAlgorithm) {
  EditedPlan plan(config());
  plan.set("only", "layers.0.attention", "deterministic", 1);
  EXPECT_THAT(misfit(plan), HasSubstr("has another attribute 'deterministic' than configured"));
}

}  // namespace
}  // namespace mfsdp
