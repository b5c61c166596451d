#include "verify/proof/order/expand_instances.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using test::op_at;
using test::PlanBuilder;
using test::rules_of;
using testing::Contains;
using testing::ElementsAre;
using testing::IsEmpty;

/// A microbatch is made on one stream and used on another, while the next one is made: of the
/// buffer and of the event that gives it back there are two.
struct Turns : PlanBuilder {
  BufferId data = buffer("data");
  EventId used_event = event("used");
  OpId waited, acquired, made, used, released;

  Turns() {
    program.buffers[data.value].instances = 2;
    program.events[used_event.value].instances = 2;
    program.plans[0].segments[0].repeat = 5;
    waited = wait(compute, "used");
    acquired = acquire(compute, data);
    made = kernel(compute, "make", {}, {data});
    record(compute, "made");
    wait(gather, "made");
    used = kernel(gather, "use", {data}, {});
    released = release(gather, data);
    record(gather, "used");
  }

  /// The wait is for the record of two microbatches before. Instances restart after a step of five:
  /// the first one follows the last of the step before, the second one the last but one.
  Program bound(const std::vector<std::int64_t>& distances = {1, 2, 3}) const {
    Program made_program = finish();
    Wait& wait = std::get<Wait>(op_at(made_program, waited).body);
    const OpId record = wait.bindings.front().record;
    wait.bindings.clear();
    for (const std::int64_t distance : distances)
      wait.bindings.push_back({.record = record, .distance = distance});
    return made_program;
  }
};

TEST(WriteOut, TwoInstancesLetTwoMicrobatchesBeUnderWay) {
  EXPECT_THAT(rules_of(Turns().bound()), IsEmpty());
}

TEST(WriteOut, DistancesAreExact) {
  EXPECT_THAT(rules_of(Turns().bound({1})), Contains("MF105"));
  EXPECT_THAT(rules_of(Turns().bound({1})), Contains("MF104"));  // the second has none to wait for
  EXPECT_THAT(rules_of(Turns().bound({2})), ElementsAre("MF105"));
  EXPECT_THAT(rules_of(Turns().bound({1, 2})), ElementsAre("MF105"));
  EXPECT_THAT(rules_of(Turns().bound({2, 3})), ElementsAre("MF105"));
  Turns four;  // each instance is used equally often in a step
  four.program.plans[0].segments[0].repeat = 4;
  EXPECT_THAT(rules_of(four.bound({2})), IsEmpty());
  EXPECT_THAT(rules_of(four.bound({3})), ElementsAre("MF105"));
}

TEST(WriteOut, OneInstanceTooFewIsARace) {
  Program program = Turns().bound();
  program.buffers[0].instances.reset();
  EXPECT_THAT(rules_of(program), Contains("MF101"));
}

TEST(WriteOut, NoOpWorksOnAMicrobatchThatHasNotBegun) {
  Turns turns;
  Program program = turns.bound();
  op_at(program, turns.used).lag = 1;
  EXPECT_THAT(rules_of(program), ElementsAre("MF004"));
}

TEST(WriteOut, AnOpOfTheWrongMicrobatchTouchesTheWrongInstance) {
  Turns turns;
  turns.segment("more", 2);
  turns.acquire(turns.compute, turns.data);
  turns.kernel(turns.compute, "make", {}, {turns.data});
  const OpId again = turns.kernel(turns.compute, "use", {turns.data}, {});
  turns.release(turns.compute, turns.data);
  Program program = turns.bound();
  program.plans[0].segments[1].ops[0].lag = 0;
  op_at(program, again).lag = 1;
  EXPECT_THAT(rules_of(program), Contains("MF102"));
}

TEST(WriteOut, NamesInstancesAndRuns) {
  const Turns turns;
  const auto expanded = expand_instances(turns.bound());
  ASSERT_TRUE(expanded);
  const Program& program = expanded->program;
  ASSERT_EQ(program.plans[0].segments.size(), 5);
  ASSERT_EQ(program.buffers.size(), 2);
  EXPECT_EQ(program.buffers[1].name, "data[1]");
  EXPECT_EQ(program.buffers[1].offset, program.buffers[0].offset + Bytes(PlanBuilder::kBytes));
  const Op& third = program.plans[0].segments[2].ops[1];  // microbatch 2: instance 0 again
  EXPECT_EQ(third.name, "data[2]");
  EXPECT_EQ(std::get<Acquire>(third.body).buffer, turns.data);
  EXPECT_EQ(expanded->ops.at(third.id).op, turns.acquired);
  EXPECT_EQ(expanded->ops.at(third.id).repetition, 2);
}

TEST(WriteOut, FindingsNameTheOpsOfTheProgram) {
  Program program = Turns().bound();
  program.buffers[0].instances.reset();
  const Finding finding = test::finding_of(program, "MF101");
  ASSERT_FALSE(finding.places.empty());
  EXPECT_EQ(finding.places.back().op, Turns().acquired);
  EXPECT_EQ(finding.buffer, Turns().data);
}

TEST(WriteOut, CountsWhatIsLiveAtABoundary) {
  Turns turns;
  std::erase_if(turns.program.plans[0].segments[0].ops,
                [&](const Op& op) { return op.id == turns.released; });
  Program program = turns.bound();
  program.plans[0].segments[0].repeat = 1;
  program.plans[0].segments[0].live_out = {turns.data};
  EXPECT_THAT(rules_of(program), Contains("MF106"));  // it lives on into the next step
}

}  // namespace
}  // namespace mfsdp
