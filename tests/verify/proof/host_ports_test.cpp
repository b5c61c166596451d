// The host must be notified of the end of each step.
#include "verify/proof/values/host_ports.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/edit_plan.hpp"
#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using test::EditedPlan;
using test::finding_of;
using test::rules_of;
using testing::Contains;
using testing::HasSubstr;

/// The copy of a plan's report to the host.
Copy& report_copy(Program& program, std::size_t plan) {
  for (Segment& segment : program.plans[plan].segments)
    for (Op& op : segment.ops)
      if (auto* copy = std::get_if<Copy>(&op.body))
        if (copy->kind == CopyKind::d2h) return *copy;
  throw std::logic_error("no report");
}

TEST(Reports, CopyIsLeftOut) {
  for (const std::size_t plan : {0, 1}) {
    EditedPlan edited(test::small_config());
    for (Segment& segment : edited.program.plans[plan].segments)
      std::erase_if(segment.ops, [](const Op& op) {
        const auto* copy = std::get_if<Copy>(&op.body);
        return copy != nullptr && copy->kind == CopyKind::d2h;
      });
    EXPECT_THAT(
        finding_of(edited.program, "MF115").message,
        HasSubstr("writes 'loss', but no later copy of the step brings it to the host's report"));
  }
}

TEST(Reports, PartOfItIsCopied) {
  EditedPlan edited(test::small_config());
  Copy& copy = report_copy(edited.program, 0);
  copy.input.shape = copy.output.shape = {7};  // of four numbers of the loss, four of the norm
  EXPECT_THAT(rules_of(edited.program), Contains("MF115"));
}

TEST(Reports, LossIsFinishedElsewhere) {
  EditedPlan edited(test::small_config());
  for (Segment& segment : edited.program.plans[1].segments)
    for (Op& op : segment.ops)
      if (auto* kernel = std::get_if<Kernel>(&op.body))
        if (kernel->kind == KernelKind::loss_finish) kernel->operands[1].offset += 4;
  EXPECT_THAT(rules_of(edited.program), Contains("MF115"));
}

/// Without clipping no update reads it; the report would hold what was there before.
TEST(Reports, NothingFinishesTheNorm) {
  PlanConfig config = test::small_config();
  config.clip = {.num = 0};
  EditedPlan edited(config);
  edited.drop("optimizer", "norm.finish");
  EXPECT_EQ(finding_of(edited.program, "MF115").message,
            "the plan of role train has no kernel that finishes the gradient norm (norm_finish)");
}

TEST(Reports, EvalIsMissingOrEmpty) {
  EditedPlan missing(test::small_config());
  missing.program.plans.pop_back();
  EXPECT_EQ(finding_of(missing.program, "MF115").message, "there is no plan of role eval");
  EditedPlan empty(test::small_config());
  empty.program.plans[1].segments.clear();
  EXPECT_EQ(finding_of(empty.program, "MF115").message,
            "the plan of role eval has no kernel that reads tokens (token_copy)");
}

TEST(Reports, PortsAreAsLargeAsWhatTheHostMoves) {
  EditedPlan edited(test::small_config());
  for (Buffer& buffer : edited.program.buffers)
    if (buffer.holds && buffer.holds->port == Port::step_block) buffer.size.value += 4;
  EXPECT_THAT(rules_of(edited.program), Contains("MF115"));
}

TEST(Reports, PortsAreOfTheTypeThatTheHostTakesThemFor) {
  EditedPlan edited(test::small_config());
  for (Buffer& buffer : edited.program.buffers)
    if (buffer.holds && buffer.holds->port == Port::tokens) buffer.dtype = DType::fp32;
  EXPECT_THAT(finding_of(edited.program, "MF115").message,
              HasSubstr("(tokens) has dtype fp32; expected int32"));
}

TEST(Reports, NothingFinishesTheLoss) {
  EditedPlan edited(test::small_config());
  for (Segment& segment : edited.program.plans[1].segments)
    std::erase_if(segment.ops, [](const Op& op) {
      const auto* kernel = std::get_if<Kernel>(&op.body);
      return kernel != nullptr && kernel->kind == KernelKind::loss_finish;
    });
  EXPECT_THAT(
      finding_of(edited.program, "MF115").message,
      HasSubstr("the plan of role eval has no kernel that finishes the loss (loss_finish)"));
}

}  // namespace
}  // namespace mfsdp
