#include "core/plan/structure_faults.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using test::PlanBuilder;
using testing::ElementsAre;
using testing::IsEmpty;

/// All faults of a small plan, as "place: what is wrong".
std::vector<std::string> faults_of(const Program& program) {
  std::vector<std::string> texts;
  for (const StructureFault& fault : structure_faults(program, 100))
    texts.push_back(fault.where + ": " + fault.what);
  return texts;
}

/// The faults of a plan with a persistent buffer and these ops on its gather stream.
std::vector<std::string> faults_after(
    const std::function<void(PlanBuilder&, BufferId state)>& add_ops) {
  PlanBuilder plan;
  const BufferId state = plan.buffer("state", true);
  add_ops(plan, state);
  return faults_of(plan.finish());
}

TEST(StructureFaults, AGroupIsCollectivesOfOneCommunicatorOnOneStream) {
  EXPECT_THAT(faults_after([](PlanBuilder& p, BufferId state) {
                p.add(p.gather, "begin", GroupBegin{p.gathers});
                p.collective(p.gather, "sum", p.gathers, state);
                p.add(p.gather, "end", GroupEnd{p.gathers});
              }),
              IsEmpty());
  EXPECT_THAT(faults_after([](PlanBuilder& p, BufferId state) {
                p.add(p.gather, "begin", GroupBegin{p.gathers});
                p.kernel(p.gather, "work", {state}, {});
                p.collective(p.reduce, "sum", p.gathers, state);
                p.add(p.gather, "end", GroupEnd{p.reductions});
              }),
              ElementsAre("plans[0].segments[0].ops[1]: is a kernel inside a group of collectives; "
                          "expected collectives only",
                          "plans[0].segments[0].ops[2].stream: is on stream 2, but its group "
                          "began on stream 1",
                          "plans[0].segments[0].ops[3].body.group_end.communicator: is 1, but "
                          "its group began with communicator 0"));
}

TEST(StructureFaults, ThereAreNoGroupsInGroups) {
  EXPECT_THAT(
      faults_after([](PlanBuilder& p, BufferId state) {
        p.add(p.gather, "begin", GroupBegin{p.gathers});
        p.add(p.gather, "again", GroupBegin{p.gathers});
        p.collective(p.gather, "sum", p.gathers, state);
        p.add(p.gather, "end", GroupEnd{p.gathers});
      }),
      ElementsAre("plans[0].segments[0].ops[1]: is a group_begin inside a group of collectives; "
                  "expected collectives only"));
}

TEST(StructureFaults, AWaitNamesRecordsOfItsOwnPlan) {
  PlanBuilder plan;
  const OpId recorded = plan.record(plan.gather, "done");
  plan.wait(plan.compute, "done");
  Program program = plan.finish();
  EXPECT_THAT(faults_of(program), IsEmpty());
  Plan eval = program.plans[0];
  eval.name = "eval";
  eval.segments[0].ops.erase(eval.segments[0].ops.begin());  // without the record
  eval.segments[0].ops[0].id = OpId(100);
  program.plans.push_back(eval);
  EXPECT_THAT(
      faults_of(program),
      ElementsAre("plans[1].segments[0].ops[0].body.wait.bindings[0].record: op " +
                  std::to_string(recorded.value) + " does not record event 0 in this plan"));
}

TEST(StructureFaults, AsManyOfEachKindAsAskedFor) {
  PlanBuilder plan;
  for (int i = 0; i < 5; ++i) plan.add(plan.gather, "end", GroupEnd{plan.gathers});
  EXPECT_EQ(structure_faults(plan.finish(), 3).size(), 3U);
  EXPECT_EQ(structure_faults(plan.finish(), 100).size(), 5U);
}

/// Two passes, "make" and "use", that one segment of two repetitions calls.
Program with_passes() {
  PlanBuilder plan;
  const BufferId state = plan.buffer("state", true);
  plan.kernel(plan.compute, "made", {}, {state});
  plan.kernel(plan.compute, "used", {state}, {});
  Program program = plan.finish();
  Plan& train = program.plans[0];
  Segment& segment = train.segments[0];
  train.passes = {{.id = PassId(0), .name = "make", .ops = {segment.ops[0]}},
                  {.id = PassId(1), .name = "use", .ops = {segment.ops[1]}}};
  segment.ops.clear();
  segment.repeat = 2;
  segment.calls = {{.pass = PassId(0)}, {.pass = PassId(1)}};
  return program;
}

std::vector<std::string> faults_of_passes(const std::function<void(Plan&)>& edit) {
  Program program = with_passes();
  edit(program.plans[0]);
  return faults_of(program);
}

TEST(StructureFaults, CallsArePassesOfThePlan) {
  EXPECT_THAT(faults_of(with_passes()), IsEmpty());
  EXPECT_THAT(faults_of_passes([](Plan& plan) { plan.segments[0].calls[1].pass = PassId(4); }),
              ElementsAre("plans[0].segments[0].calls[1].pass: there is no pass with id 4",
                          "plans[0].passes[1]: no segment calls this pass"));
  EXPECT_THAT(faults_of_passes([](Plan& plan) { plan.passes[1].id = PassId(0); }),
              testing::Contains("plans[0].passes[1].id: id 0 appears twice"));
  EXPECT_THAT(faults_of_passes([](Plan& plan) { plan.passes[1].name = "make"; }),
              ElementsAre("plans[0].passes[1].name: expected a name that no other pass has, got "
                          "'make'"));
  EXPECT_THAT(
      faults_of_passes([](Plan& plan) { std::swap(plan.segments[0].ops, plan.passes[0].ops); }),
      ElementsAre("plans[0].segments[0].calls: expected calls of passes or ops of its own, "
                  "not both"));
}

TEST(StructureFaults, CallsWorkOnMicrobatchesThatHaveBegun) {
  const auto with_lag = [](std::int64_t lag, std::int64_t step) {
    return faults_of_passes([=](Plan& plan) {
      plan.segments[0].calls[1].lag = lag;
      plan.segments[0].calls[1].lag_step = step;
    });
  };
  EXPECT_THAT(with_lag(0, 1), IsEmpty());
  EXPECT_THAT(
      with_lag(1, 0),
      ElementsAre("plans[0].segments[0].calls[1].lag: the lag is 1 in repetition 0: "
                  "expected at least 0, and less than 1, the microbatches that have begun"));
  EXPECT_THAT(
      with_lag(0, -1),
      ElementsAre("plans[0].segments[0].calls[1].lag: the lag is -1 in repetition 1: "
                  "expected at least 0, and less than 2, the microbatches that have begun"));
  // The lag of an op is added to that of its calls.
  EXPECT_THAT(faults_of_passes([](Plan& plan) { plan.passes[1].ops[0].lag = 1; }),
              ElementsAre("plans[0].passes[1].ops[0].lag: expected less than 1, the microbatches "
                          "that have begun, got 1"));
}

}  // namespace
}  // namespace mfsdp
