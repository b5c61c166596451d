#include "verify/proof/ranks/collectives.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using test::op_at;
using test::PlanBuilder;
using test::rules_of;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(CollectiveShapes, EveryKind) {
  struct Case {
    CollectiveKind kind;
    Reduction reduction;
    std::int64_t count, input, output;
    bool fits;
  };
  using enum CollectiveKind;
  // Two ranks. all_gather: count sent, 2 count received; reduce_scatter the other way round.
  const std::vector<Case> cases{{all_gather, Reduction::none, 64, 64, 128, true},
                                {all_gather, Reduction::none, 64, 64, 64, false},
                                {all_gather, Reduction::sum, 64, 64, 128, false},
                                {reduce_scatter, Reduction::sum, 64, 128, 64, true},
                                {reduce_scatter, Reduction::sum, 128, 128, 64, false},
                                {reduce_scatter, Reduction::none, 64, 128, 64, false},
                                {all_reduce, Reduction::sum, 64, 64, 64, true},
                                {all_reduce, Reduction::sum, 64, 128, 64, false},
                                {all_reduce, Reduction::max, 64, 64, 64, false},  // of bytes
                                {reduce_scatter, Reduction::max, 64, 128, 64, false},
                                {all_gather, Reduction::max, 64, 64, 128, false},
                                // all_to_all: count for each of the two.
                                {all_to_all, Reduction::none, 64, 128, 128, true},
                                {all_to_all, Reduction::none, 64, 64, 128, false},
                                {all_to_all, Reduction::none, 128, 128, 128, false},
                                {all_to_all, Reduction::sum, 64, 128, 128, false}};
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    PlanBuilder plan;
    const BufferId from = plan.buffer("from", true);
    const BufferId to = plan.buffer("to", true);
    plan.add(plan.gather, "collective",
             Collective{.kind = c.kind,
                        .communicator = plan.gathers,
                        .reduction = c.reduction,
                        .count = c.count,
                        .dtype = DType::uint8,
                        .input = PlanBuilder::bytes(from, Access::read, 0, c.input),
                        .output = PlanBuilder::bytes(to, Access::write, 0, c.output)});
    if (c.fits)
      EXPECT_THAT(rules_of(plan.finish()), IsEmpty()) << i;
    else
      EXPECT_THAT(rules_of(plan.finish()), ElementsAre("MF204")) << i;
  }
}

TEST(CollectiveShapes, OneDtype) {
  PlanBuilder plan;
  const OpId sum = plan.collective(plan.reduce, "sum", plan.reductions, plan.buffer("a", true));
  Program program = plan.finish();
  EXPECT_THAT(rules_of(program), IsEmpty());
  std::get<Collective>(op_at(program, sum).body).dtype = DType::bf16;
  EXPECT_THAT(rules_of(program), ElementsAre("MF204"));
}

std::int64_t concurrent(const PlanBuilder& plan) {
  return prove(plan.finish())->bounds.concurrent_collectives;
}

TEST(ConcurrentCollectives, OfTwoCommunicators) {
  PlanBuilder plan;
  const BufferId a = plan.buffer("a", true);
  const BufferId b = plan.buffer("b", true);
  EXPECT_EQ(concurrent(plan), 0);
  plan.collective(plan.gather, "gather", plan.gathers, a);
  EXPECT_EQ(concurrent(plan), 1);
  plan.collective(plan.reduce, "reduce", plan.reductions, b);
  EXPECT_EQ(concurrent(plan), 2);
}

TEST(ConcurrentCollectives, OrderedOnesNeedNoRoomTogether) {
  // Each waits for the other, round and round over the steps.
  PlanBuilder plan;
  const BufferId a = plan.buffer("a", true);
  plan.wait(plan.gather, "reduced");
  plan.collective(plan.gather, "gather", plan.gathers, a);
  plan.record(plan.gather, "gathered");
  plan.wait(plan.reduce, "gathered");
  plan.collective(plan.reduce, "reduce", plan.reductions, a);
  plan.record(plan.reduce, "reduced");
  EXPECT_THAT(rules_of(plan.finish()), IsEmpty());
  EXPECT_EQ(concurrent(plan), 1);
}

TEST(ConcurrentCollectives, OfOneCommunicatorSerialise) {
  PlanBuilder plan;
  plan.collective(plan.gather, "one", plan.gathers, plan.buffer("a", true));
  plan.collective(plan.reduce, "two", plan.gathers, plan.buffer("b", true));
  EXPECT_EQ(concurrent(plan), 1);
}

}  // namespace
}  // namespace mfsdp
