// Ops are numbered by the list that has them, and run where segments call it.
#include "core/plan/instances.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "core/plan/without_passes.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;

Op op_named(std::size_t id, const char* name) {
  Op op;
  op.id = OpId(id);
  op.name = name;
  op.body = Record{};
  return op;
}

/// 1F1B with one microbatch ahead: two begin before the first backward.
Plan one_ahead() {
  Plan plan{.name = "train", .segments = {}};
  plan.passes = {
      {.id = PassId(5), .name = "forward", .ops = {op_named(0, "f")}},
      {.id = PassId(2), .name = "backward", .ops = {op_named(1, "b"), op_named(2, "c")}}};
  plan.passes[1].ops[1].lag = 1;
  const auto segment = [&](const char* name, std::int64_t repeat, std::int64_t microbatches,
                           std::vector<PassCall> calls) {
    Segment& made = plan.segments.emplace_back();
    made.name = name;
    made.repeat = repeat;
    made.microbatches = microbatches;
    made.calls = std::move(calls);
  };
  segment("warm_up", 2, 1, {{.pass = PassId(5)}});
  segment("steady", 2, 1, {{.pass = PassId(5)}, {.pass = PassId(2), .lag = 2}});
  segment("drain", 2, 0, {{.pass = PassId(2), .lag = 1, .lag_step = -1}});
  segment("optimizer", 1, 0, {});
  plan.segments.back().ops = {op_named(3, "update")};
  return plan;
}

std::vector<std::string> listed_names(Plan plan) {
  std::vector<std::string> names;
  for (const Op& op : ops_of(std::as_const(plan))) names.push_back(op.name);
  for (Op& op : ops_of(plan)) op.name += "!";
  EXPECT_EQ(op_list(plan, plan.segments.size()).front().name, "f!");
  return names;
}

TEST(Instances, EachOpIsListedOnceAfterThoseOfSegments) {
  EXPECT_THAT(listed_names(one_ahead()), ElementsAre("update", "f", "b", "c"));
  EXPECT_EQ(count_ops(one_ahead()), 4);
  EXPECT_EQ(ops_in_run(one_ahead(), 1), 3);
  EXPECT_EQ(ops_in_run(one_ahead(), 3), 1);
}

TEST(Instances, RunInHostOrderWithTheLagsOfCallsAndOps) {
  const Plan plan = one_ahead();
  std::vector<std::tuple<std::string, std::size_t, std::int64_t, std::int64_t>> runs;
  for_each_instance(plan, {}, [&](const OpRun& run, const Op& op) {
    EXPECT_EQ(&op, &op_list(plan, run.list)[run.position]);
    runs.emplace_back(op.name, run.segment, run.begun, run.lag);
  });
  EXPECT_THAT(
      runs,
      ElementsAre(std::tuple("f", 0, 1, 0), std::tuple("f", 0, 2, 0), std::tuple("f", 1, 3, 0),
                  std::tuple("b", 1, 3, 2), std::tuple("c", 1, 3, 3), std::tuple("f", 1, 4, 0),
                  std::tuple("b", 1, 4, 2), std::tuple("c", 1, 4, 3), std::tuple("b", 2, 4, 1),
                  std::tuple("c", 2, 4, 2), std::tuple("b", 2, 4, 0), std::tuple("c", 2, 4, 1),
                  std::tuple("update", 3, 4, 0)));
}

TEST(Instances, AreCutByStepsAndRepetitions) {
  std::vector<std::string> runs;
  for_each_instance(one_ahead(), {.steps = 2, .repetitions = 1},
                    [&](const OpRun& run, const Op& op) {
                      runs.push_back(op.name + std::to_string(run.instance(2)));
                    });
  // Microbatches restart with each step.
  EXPECT_THAT(runs, ElementsAre("f0", "f1", "b1", "c0", "b0", "c1", "update1", "f0", "f1", "b1",
                                "c0", "b0", "c1", "update1"));
}

/// Name, microbatches begun and lag of each op that a step runs.
std::vector<std::tuple<std::string, std::int64_t, std::int64_t>> step_of(const Plan& plan) {
  std::vector<std::tuple<std::string, std::int64_t, std::int64_t>> runs;
  for_each_instance(plan, {}, [&](const OpRun& run, const Op& op) {
    runs.emplace_back(op.name, run.begun, run.lag);
  });
  return runs;
}

TEST(Instances, AreTheSameWithoutPasses) {
  Program program;
  program.plans = {one_ahead()};
  const Plan plan = without_passes({.programs = {program}}).programs[0].plans[0];
  EXPECT_TRUE(plan.passes.empty());
  ASSERT_EQ(plan.segments.size(), 5);  // two for the drain, whose lag steps
  EXPECT_EQ(plan.segments[2].name, "drain.0");
  EXPECT_EQ(plan.segments[3].name, "drain.1");
  EXPECT_EQ(step_of(plan), step_of(one_ahead()));
}

}  // namespace
}  // namespace mfsdp
