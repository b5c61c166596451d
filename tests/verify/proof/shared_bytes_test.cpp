#include "verify/proof/memory/shared_bytes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/configurations.hpp"
#include "tests/support/edit_plan.hpp"
#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using test::EditedPlan;
using test::finding_of;
using test::rules_of;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

TEST(SharedBytes, OfAKernel) {
  EditedPlan plan(test::small_config(4));
  Operand& sums = plan.operand("only", "head.chunk0.cross_entropy", "loss_sums");
  const Operand& workspace = plan.operand("only", "head.chunk0.cross_entropy", "workspace");
  sums.buffer = workspace.buffer;
  EXPECT_THAT(rules_of(plan.program), Contains("MF007"));
  EXPECT_THAT(finding_of(plan.program, "MF007").message,
              HasSubstr("that its operands 'loss_sums' and 'workspace' share"));
}

/// Each rank reads the beginning of what it writes: that of rank 0 alone is its own part.
TEST(SharedBytes, OfAGather) {
  EditedPlan plan(test::small_config(4));
  Collective& gather = plan.collective("only", "loss.all_gather");
  gather.input.buffer = gather.output.buffer;
  gather.input.offset = gather.output.offset;
  EXPECT_THAT(rules_of(plan.program), Contains("MF204"));
  gather.input.rank_strides = {{.axis = Axis::dp_shard, .bytes = gather.input.span_bytes()}};
  EXPECT_THAT(rules_of(plan.program), Not(Contains("MF204")));
  gather.input.rank_strides[0].bytes *= -1;
  EXPECT_FALSE(rules_of(plan.program).empty());
}

/// The planner's ops in place are correct.
TEST(SharedBytes, OfWhatIsSummedInPlace) {
  for (const Strategy strategy : {Strategy::no_shard, Strategy::optim, Strategy::optim_grads}) {
    PlanConfig config = test::small_config(4);
    config.strategy = strategy;
    EXPECT_THAT(rules_of(EditedPlan(config).program), IsEmpty());
  }
}

}  // namespace
}  // namespace mfsdp
