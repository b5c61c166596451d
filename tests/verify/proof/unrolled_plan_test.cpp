#include "verify/proof/order/unrolled_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/plan_builder.hpp"
#include "tests/support/tiny_program.hpp"

namespace mfsdp {
namespace {

using test::op_at;
using test::PlanBuilder;
using test::rules_of;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(UnrolledPlan, ClocksOfTheTinyProgram) {
  const Program program = test::tiny_program();
  const ProgramIndex index(program);
  FindingList findings(10);
  const UnrolledPlan u = unroll(program, index, program.plans[0], {}, findings);
  EXPECT_THAT(findings.list(), IsEmpty());
  ASSERT_EQ(u.instances.size(), 20U);  // 10 ops, two steps
  ASSERT_EQ(u.chains, 3U);             // compute, all_gather, host
  // gemm (op 5) follows acquire, gather and record on the other stream.
  EXPECT_THAT(u.clock(5), ElementsAre(0, 3, 0));
  EXPECT_TRUE(u.before(1, 5));
  EXPECT_FALSE(u.before(5, 1));
  // The release (op 9) follows compute's record, its fifth op.
  EXPECT_THAT(u.clock(9).front(), 5U);
  // The second step's gather follows the first one's release on its own stream.
  EXPECT_TRUE(u.before(9, 11));
  EXPECT_EQ(place_of(u, 13).step, 1);
  EXPECT_EQ(to_text(place_of(u, 13)), "wait gathered (compute)");
}

TEST(UnrolledPlan, RepeatedSegmentsTwiceAtMost) {
  PlanBuilder plan;
  const BufferId a = plan.buffer("a", true);
  plan.kernel(plan.compute, "first", {a}, {});
  plan.segment("middle", 7);
  plan.kernel(plan.compute, "middle", {a}, {});
  const Program program = plan.finish();
  const ProgramIndex index(program);
  FindingList findings(10);
  const UnrolledPlan u = unroll(program, index, program.plans[0], {}, findings);
  EXPECT_EQ(u.runs.size(), 6U);  // (first, middle, middle) twice
  EXPECT_EQ(u.runs[2].repetition, 1);
}

TEST(UnrolledPlan, WaitForWhatNothingHasRecorded) {
  PlanBuilder plan;
  const OpId wait = plan.wait(plan.compute, "later");
  const OpId record = plan.record(plan.gather, "later");
  Program program = plan.finish();
  // Bound to the last step's record, the first step's wait is satisfied.
  EXPECT_THAT(rules_of(program), IsEmpty());
  std::get<Wait>(op_at(program, wait).body).bindings = {{record, 0}};
  EXPECT_THAT(rules_of(program), ElementsAre("MF104"));
}

TEST(UnrolledPlan, WaitThatGetsAnotherRecord) {
  PlanBuilder plan;
  const OpId first = plan.record(plan.gather, "done");
  const OpId second = plan.record(plan.gather, "done");
  const OpId wait = plan.wait(plan.compute, "done");
  Program program = plan.finish();
  EXPECT_THAT(rules_of(program), IsEmpty());
  std::get<Wait>(op_at(program, wait).body).bindings = {{first, 0}};
  EXPECT_THAT(rules_of(program), ElementsAre("MF105"));
  const Finding finding = test::finding_of(program, "MF105");
  ASSERT_EQ(finding.places.size(), 2U);
  EXPECT_EQ(finding.places[1].op, second);
  // The right record of the wrong step.
  std::get<Wait>(op_at(program, wait).body).bindings = {{second, 1}};
  EXPECT_THAT(rules_of(program), ElementsAre("MF105"));
}

TEST(UnrolledPlan, HostWaitIsBoundLikeAWait) {
  PlanBuilder plan;
  const OpId wait = plan.host_wait("later");
  const OpId record = plan.record(plan.gather, "later");
  Program program = plan.finish();
  EXPECT_THAT(rules_of(program), IsEmpty());
  std::get<HostWait>(op_at(program, wait).body).bindings = {{record, 0}};
  EXPECT_THAT(rules_of(program), ElementsAre("MF104"));
}

TEST(UnrolledPlan, RedundantWaits) {
  PlanBuilder plan;
  plan.record(plan.gather, "done");
  const OpId needed = plan.wait(plan.compute, "done");
  const OpId again = plan.wait(plan.compute, "done");
  plan.record(plan.compute, "own");
  const OpId own = plan.wait(plan.compute, "own");
  const auto proof = prove(plan.finish());
  EXPECT_THAT(proof->bounds.redundant_waits, ElementsAre(again, own));
  EXPECT_EQ(test::finding_of(plan.finish(), "MF604").places.front().op, again);
  EXPECT_THAT(proof->bounds.redundant_waits, testing::Not(testing::Contains(needed)));
}

}  // namespace
}  // namespace mfsdp
