#include "verify/proof/classes.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using test::op_at;
using test::PlanBuilder;

std::vector<std::string> rules_between(const Program& a, const Program& b) {
  const std::vector<Program> classes{a, b};
  const auto findings = compare_classes(classes);
  if (!findings) return {findings.error().message()};
  std::vector<std::string> rules;
  for (const Finding& finding : *findings) rules.push_back(finding.rule);
  return rules;
}

/// Two collectives of different communicators, each on a stream of its own.
Program two_collectives(bool gather_first, bool ordered) {
  PlanBuilder plan;
  const BufferId a = plan.buffer("a", true);
  const BufferId b = plan.buffer("b", true);
  const auto gather = [&] { plan.collective(plan.gather, "gather", plan.gathers, a); };
  const auto reduce = [&] { plan.collective(plan.reduce, "reduce", plan.reductions, b); };
  gather_first ? gather() : reduce();
  if (ordered) {
    plan.record(gather_first ? plan.gather : plan.reduce, "done");
    plan.wait(gather_first ? plan.reduce : plan.gather, "done");
  }
  gather_first ? reduce() : gather();
  return plan.finish();
}

TEST(Classes, EqualPlansAgree) {
  EXPECT_THAT(rules_between(two_collectives(true, true), two_collectives(true, true)),
              testing::IsEmpty());
  EXPECT_THAT(rules_between(two_collectives(true, false), two_collectives(true, true)),
              testing::IsEmpty());
}

TEST(Classes, OppositeOrderDeadlocks) {
  EXPECT_THAT(rules_between(two_collectives(true, true), two_collectives(false, true)),
              testing::ElementsAre("MF202"));
}

TEST(Classes, OppositeLaunchesDeadlockWithoutRoomForBoth) {
  EXPECT_THAT(rules_between(two_collectives(true, false), two_collectives(false, false)),
              testing::ElementsAre("MF203"));
}

TEST(Classes, SequencesOfOneCommunicatorDiffer) {
  const auto sums = [](std::int64_t count, std::int64_t times) {
    PlanBuilder plan;
    const BufferId a = plan.buffer("a", true);
    for (std::int64_t i = 0; i < times; ++i) {
      const OpId sum = plan.collective(plan.reduce, "sum", plan.reductions, a);
      auto& body = std::get<Collective>(op_at(plan.program, sum).body);
      body.count = count;
      body.input.shape = body.output.shape = {count};
    }
    return plan.finish();
  };
  EXPECT_THAT(rules_between(sums(256, 2), sums(256, 2)), testing::IsEmpty());
  EXPECT_THAT(rules_between(sums(256, 2), sums(128, 2)), testing::ElementsAre("MF201"));
  EXPECT_THAT(rules_between(sums(256, 2), sums(256, 1)), testing::ElementsAre("MF201"));
  // Unrolled alike, but the one repeats its microbatch seven times.
  Program seven = sums(256, 1);
  seven.plans[0].segments[0].repeat = 7;
  Program two = sums(256, 1);
  two.plans[0].segments[0].repeat = 2;
  EXPECT_THAT(rules_between(seven, two), testing::ElementsAre("MF201"));
}

TEST(Classes, EveryClassHasThePlan) {
  Program other = two_collectives(true, true);
  other.plans[0].name = "eval";
  EXPECT_THAT(rules_between(two_collectives(true, true), other),
              testing::ElementsAre("class 1: expected a plan 'train'"));
}

}  // namespace
}  // namespace mfsdp
