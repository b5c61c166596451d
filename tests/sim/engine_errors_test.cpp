// Errors of simulate(), and their messages.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "sim/simulator/simulation.hpp"
#include "tests/sim/timed_plan.hpp"

namespace mfsdp {
namespace {

using namespace test;
using testing::HasSubstr;
using testing::Not;

std::string error_of(const Result<Simulation>& result) {
  return result ? "none" : result.error().message();
}

/// The error of a plan of one segment with an addition.
std::string error_in(const std::function<void(Tiny&)>& add) {
  Tiny tiny;
  tiny.segment("only");
  add(tiny);
  return error_of(simulate(tiny));
}

TEST(SimulateRefuses, AWaitForWhatIsNeverRecordedIsADeadlock) {
  Tiny tiny;
  tiny.segment("only").kernel(1).wait(kCompute, 3);
  EXPECT_EQ(error_of(simulate(tiny)),
            "train.only.ops[1] 'wait': deadlock: waits for event 'e3', which no op records");
}

TEST(SimulateRefuses, AWaitForALaterRecordIsADeadlock) {
  Tiny tiny;
  tiny.segment("only").wait(kCompute, 3).kernel(1).record(kGather, 3);
  EXPECT_THAT(error_of(simulate(tiny)), HasSubstr("ops[0] 'wait': deadlock: waits for event 'e3'"));
}

TEST(SimulateRefuses, WrongUseOfBuffersIsAnError) {
  Tiny twice;
  twice.buffer(8, Category::activation).segment("only").acquire(kCompute, 0).acquire(kGather, 0);
  EXPECT_THAT(error_of(simulate(twice)), HasSubstr("buffer 'b0' is acquired while it is live"));
  Tiny dead;
  dead.buffer(8, Category::activation).segment("middle", 2).release(kCompute, 0);
  EXPECT_EQ(error_of(simulate(dead)),
            "train.middle.ops[0] 'release': instance 0: buffer 'b0' is released while it is not "
            "live");
  Tiny leak;  // the second instance finds it live
  leak.buffer(8, Category::activation).segment("middle", 2).acquire(kCompute, 0);
  EXPECT_THAT(error_of(simulate(leak)), HasSubstr("instance 1: buffer 'b0' is acquired while"));
  Tiny persistent;
  persistent.buffer(8, Category::main_grad, 0, true).segment("only").acquire(kCompute, 0);
  EXPECT_THAT(error_of(simulate(persistent)), HasSubstr("buffer 'b0' is persistent"));
}

TEST(SimulateRefuses, IdsThatDoNotResolveAreErrors) {
  EXPECT_THAT(error_in([](Tiny& t) { t.kernel(1, "k", 77); }),
              HasSubstr("train.only.ops[0] 'k': there is no stream with id 77"));
  EXPECT_THAT(error_in([](Tiny& t) { t.record(kCompute, 4294967295U); }),
              HasSubstr("no event with id 4294967295"));
  EXPECT_THAT(error_in([](Tiny& t) { t.wait(kCompute, 99); }), HasSubstr("no event with id 99"));
  EXPECT_THAT(error_in([](Tiny& t) { t.acquire(kCompute, 5); }), HasSubstr("no buffer with id 5"));
  EXPECT_THAT(error_in([](Tiny& t) { t.collective(kGather, 9, {}); }),
              HasSubstr("no communicator with id 9"));
  EXPECT_THAT(error_in([](Tiny& t) { t.collective(kGather, 0, {}, 42); }),
              HasSubstr("no unit with id 42"));
  EXPECT_THAT(error_in([](Tiny& t) { t.buffer(1, Category::logits, 6); }),
              HasSubstr("buffers[0].pool: there is no pool with id 6"));
  EXPECT_THAT(error_in([](Tiny& t) { t.plan().segments[0].live_in = {BufferId(3)}; }),
              HasSubstr("train.only.live_in: there is no buffer with id 3"));
}

TEST(SimulateRefuses, GroupsThatDoNotNestAreErrors) {
  const GroupBegin begin{CommunicatorId(0)};
  const GroupEnd end{CommunicatorId(0)};
  EXPECT_THAT(error_in([&](Tiny& t) { t.op(kGather, "g", begin); }),
              HasSubstr("group_begin without group_end"));
  EXPECT_THAT(error_in([&](Tiny& t) { t.op(kGather, "g", end); }),
              HasSubstr("group_end without group_begin"));
  EXPECT_THAT(error_in([&](Tiny& t) { t.op(kGather, "g", begin).kernel(1, "k", kGather); }),
              HasSubstr("expected only collectives"));
  EXPECT_THAT(error_in([&](Tiny& t) {
                t.op(kGather, "g", begin).collective(kGather, 1, {}).op(kGather, "h", end);
              }),
              HasSubstr("expected the communicator of its group"));
  EXPECT_THAT(error_in([&](Tiny& t) {
                t.op(kGather, "g", begin).op(kGather, "h", GroupEnd{CommunicatorId(1)});
              }),
              HasSubstr("expected the communicator of its group_begin"));
}

TEST(SimulateRefuses, AbsurdNumbersAreErrors) {
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_THAT(error_in([](Tiny& t) { t.kernel(-5); }), HasSubstr("at least 0 ns, got -5"));
  EXPECT_THAT(error_in([](Tiny& t) { t.copy(-5); }), HasSubstr("at least 0 ns, got -5"));
  EXPECT_THAT(error_in([](Tiny& t) { t.collective(kGather, 0, {.duration = 5, .latency = 6}); }),
              HasSubstr("latency"));
  EXPECT_THAT(error_in([](Tiny& t) { t.kernel(huge).kernel(huge); }), HasSubstr("out of range"));
  EXPECT_THAT(error_in([](Tiny& t) {
                t.buffer(huge, Category::logits, 0, true).buffer(huge, Category::logits, 0, true);
              }),
              HasSubstr("out of range"));
  EXPECT_THAT(error_in([](Tiny& t) { t.segment("middle", huge).kernel(1); }),
              HasSubstr("train.middle.repeat: a step of more than"));
  EXPECT_THAT(error_in([](Tiny& t) { t.segment("middle", -1).kernel(1); }),
              HasSubstr("train.middle.repeat: expected at least 0, got -1"));
  EXPECT_THAT(error_in([](Tiny& t) {
                t.program.communicators[0].size = 0;
                t.collective(kGather, 0, {.duration = 5});
              }),
              HasSubstr("at least 1 rank"));
  // Each rank sends 2 * (4 - 1) / 4 of 2^62 bytes: 1.5 * 2^62 fits, of 2^63 - 2 bytes does not.
  const auto reduce = [&](std::int64_t elements) {
    return error_in([&](Tiny& t) {
      t.collective(kGather, 0, {.duration = elements}, {}, CollectiveKind::all_reduce);
    });
  };
  EXPECT_THAT(reduce(huge / 2), Not(HasSubstr("out of range")));
  EXPECT_THAT(reduce(huge - 1), HasSubstr("out of range"));
}

}  // namespace
}  // namespace mfsdp
