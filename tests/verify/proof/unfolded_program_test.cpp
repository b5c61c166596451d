#include "verify/proof/order/unfolded_program.hpp"

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
  OpId waited, acquired, made, used, released, gave_back;

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
    gave_back = record(gather, "used");
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

TEST(Unfolded, TwoInstancesLetTwoMicrobatchesBeUnderWay) {
  EXPECT_THAT(rules_of(Turns().bound()), IsEmpty());
}

TEST(Unfolded, DistancesAreExact) {
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

TEST(Unfolded, OneInstanceTooFewIsARace) {
  Program program = Turns().bound();
  program.buffers[0].instances.reset();
  EXPECT_THAT(rules_of(program), Contains("MF101"));
}

TEST(Unfolded, NoOpWorksOnAMicrobatchThatHasNotBegun) {
  Turns turns;
  Program program = turns.bound();
  op_at(program, turns.used).lag = 1;
  EXPECT_THAT(rules_of(program), ElementsAre("MF004"));
}

TEST(Unfolded, AnOpOfTheWrongMicrobatchTouchesTheWrongInstance) {
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

TEST(Unfolded, EachVariantIsAPassAndEachRunASegment) {
  const Turns turns;
  const auto unfolded = unfolded_program(turns.bound());
  ASSERT_TRUE(unfolded);
  const Program& program = unfolded->program;
  ASSERT_EQ(program.plans[0].segments.size(), 5);
  ASSERT_EQ(program.plans[0].passes.size(), 2);  // five runs with two instances
  ASSERT_EQ(program.buffers.size(), 2);
  EXPECT_EQ(program.buffers[1].name, "data[1]");
  EXPECT_EQ(program.buffers[1].offset, program.buffers[0].offset + Bytes(PlanBuilder::kBytes));
  for (std::size_t run = 0; run < 5; ++run) {
    ASSERT_EQ(program.plans[0].segments[run].calls.size(), 1);
    EXPECT_EQ(program.plans[0].segments[run].calls[0].pass, program.plans[0].passes[run % 2].id);
    EXPECT_EQ(unfolded->runs[0][run].repetition, run);
  }
  const Op& second = program.plans[0].passes[1].ops[1];
  EXPECT_EQ(second.id, turns.acquired);
  EXPECT_EQ(std::get<Acquire>(second.body).buffer, program.buffers[1].id);
}

/// A plan with the ops of its segment in two passes, which run one after the other.
Program in_passes(Program program, std::size_t ops_of_first) {
  Plan& plan = program.plans[0];
  std::vector<Op>& ops = plan.segments[0].ops;
  const auto cut = ops.begin() + static_cast<std::ptrdiff_t>(ops_of_first);
  plan.passes = {{.id = PassId(7), .name = "make", .ops = {ops.begin(), cut}},
                 {.id = PassId(3), .name = "use", .ops = {cut, ops.end()}}};
  ops.clear();
  plan.segments[0].calls = {{.pass = PassId(7)}, {.pass = PassId(3)}};
  return program;
}

TEST(Unfolded, PassesAreProvedAsTheOpsThatTheyHave) {
  EXPECT_THAT(rules_of(in_passes(Turns().bound(), 4)), IsEmpty());
  Program lacking = Turns().bound();
  lacking.buffers[0].instances.reset();
  EXPECT_THAT(rules_of(in_passes(lacking, 4)), Contains("MF101"));
  EXPECT_THAT(rules_of(in_passes(Turns().bound({2, 3}), 4)), ElementsAre("MF105"));
}

TEST(Unfolded, ACallOfAnEarlierMicrobatchUsesItsInstance) {
  Program program = in_passes(Turns().bound(), 4);
  Plan& plan = program.plans[0];
  // One microbatch more is made before the others are used, and the last one at the end.
  Segment& steady = plan.segments[0];
  Segment first = steady;
  first.name = "first";
  first.repeat = 1;
  first.calls = {{.pass = PassId(7)}};
  first.live_out = {BufferId(0)};
  Segment last = first;
  last.name = "last";
  last.microbatches = 0;
  last.calls = {{.pass = PassId(3)}};
  std::swap(last.live_in, last.live_out);
  steady.live_in = steady.live_out = {BufferId(0)};
  steady.calls[1].lag = 1;
  steady.repeat = 4;
  plan.segments = {first, steady, last};
  Program wrong = program;
  wrong.plans[0].segments[1].calls[1].lag = 0;
  EXPECT_THAT(rules_of(wrong), Contains("MF102"));
  std::get<Wait>(op_at(program, Turns().waited).body).bindings = {
      {.record = Turns().gave_back, .distance = 0},
      {.record = Turns().gave_back, .distance = 1},
      {.record = Turns().gave_back, .distance = 2}};
  EXPECT_THAT(rules_of(program), IsEmpty());
}

/// Two instances begin again after two repetitions: two such periods are enough.
TEST(Unfolded, ManyRepetitionsAreProvedByTwoPeriods) {
  for (const std::int64_t repeat : {40, 41}) {
    Turns turns;
    turns.program.plans[0].segments[0].repeat = repeat;
    const std::vector<std::int64_t> distances =
        repeat == 40 ? std::vector<std::int64_t>{2} : std::vector<std::int64_t>{1, 2, 3};
    EXPECT_THAT(rules_of(turns.bound(distances)), IsEmpty());
    EXPECT_THAT(rules_of(turns.bound({3, 4})), ElementsAre("MF105"));
    const auto unfolded = unfolded_program(turns.bound());
    ASSERT_TRUE(unfolded);
    ASSERT_EQ(unfolded->runs[0].size(), repeat - 36);
    EXPECT_EQ(unfolded->runs[0].back().repetition, repeat - 1);
    std::int64_t all = 0;
    for (const SegmentRun& run : unfolded->runs[0]) all += run.times;
    EXPECT_EQ(all, repeat);
    const auto whole = unfolded_program(turns.bound(), Repetitions::all);
    ASSERT_TRUE(whole);
    EXPECT_EQ(whole->runs[0].size(), repeat);
  }
}

TEST(Unfolded, FindingsNameTheOpsOfTheProgram) {
  Program program = Turns().bound();
  program.buffers[0].instances.reset();
  const Finding finding = test::finding_of(program, "MF101");
  ASSERT_FALSE(finding.places.empty());
  EXPECT_EQ(finding.places.back().op, Turns().acquired);
  EXPECT_EQ(finding.buffer, Turns().data);
}

TEST(Unfolded, CountsWhatIsLiveAtABoundary) {
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
