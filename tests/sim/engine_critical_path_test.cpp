#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/simulator/critical_path.hpp"
#include "tests/sim/timed_plan.hpp"

namespace mfsdp {
namespace {

using namespace test;
using testing::ElementsAre;

CriticalPath path_of(Tiny& tiny) {
  const auto simulation = simulate(tiny);
  EXPECT_TRUE(simulation.has_value()) << simulation.error().message();
  return critical_path(tiny.program, tiny.plan(), *simulation);
}

std::vector<std::string> names_of(const CriticalPath& path) {
  std::vector<std::string> names;
  for (const CriticalOp& op : path.ops) names.push_back(op.name);
  return names;
}

TEST(CriticalPath, GoesThroughTheGatherThatIsLongerThanTheKernelBesideIt) {
  Tiny tiny;
  tiny.segment("only").record(kCompute, 0).wait(kGather, 0);
  tiny.collective(kGather, 0, {.duration = 60}, 1).record(kGather, 1);
  tiny.kernel(40, "one").wait(kCompute, 1).kernel(50, "two");
  // 60 of unit b's gather, then 50: longer than 40 + 50.
  const CriticalPath path = path_of(tiny);
  EXPECT_THAT(names_of(path), ElementsAre("all_gather", "two"));
  EXPECT_EQ(path.length, Nanos(110));
  EXPECT_EQ(path.before_step, Nanos(0));
  EXPECT_EQ(path.bounding_unit, "b");
  ASSERT_EQ(path.by_unit.size(), 2U);
  EXPECT_EQ(path.by_unit[0].time, Nanos(60));
  EXPECT_EQ(path.by_unit[1].name, "no unit");
  EXPECT_EQ(path.by_unit[1].time, Nanos(50));
  EXPECT_EQ(path.by_kind[0].name, "all_gather");
  EXPECT_EQ(path.by_kind[1].name, "gemm");
  EXPECT_FALSE(path.abridged);
}

TEST(CriticalPath, FollowsHostWaitsAndCommunicators) {
  // copy (20) before the host goes on to the first collective (30); the second (40) has no wait but
  // shares the communicator: 20 + 30 + 40. The kernel (5) is beside all of it.
  Tiny tiny;
  tiny.segment("only").copy(20).record(kCopyOut, 0).kernel(5).host_wait(0);
  tiny.collective(kGather, 0, {.duration = 30}, 0);
  tiny.collective(kScatter, 0, {.duration = 40}, 2, CollectiveKind::reduce_scatter);
  const CriticalPath path = path_of(tiny);
  EXPECT_THAT(names_of(path), ElementsAre("copy", "all_gather", "reduce_scatter"));
  EXPECT_EQ(path.length, Nanos(90));
  EXPECT_EQ(path.bounding_unit, "c");
}

TEST(CriticalPath, CountsAGroupOnce) {
  Tiny tiny;
  tiny.segment("only").op(kGather, "begin", GroupBegin{CommunicatorId(0)});
  tiny.collective(kGather, 0, {.duration = 100, .latency = 20});
  tiny.collective(kGather, 0, {.duration = 50, .latency = 20});
  tiny.op(kGather, "end", GroupEnd{CommunicatorId(0)});
  EXPECT_EQ(path_of(tiny).length, Nanos(130));  // 80 + 30 + 20
}

TEST(CriticalPath, SaysWhatOfItRanBeforeTheStep) {
  // The gather of 30 runs under the kernel of 50 that ends the step before, from -50 to -20; the
  // kernel of 100 waits for it and for its own stream: 30 + 100 + 50, longer than the step by 30.
  Tiny tiny;
  tiny.segment("only").wait(kGather, 0, 1).collective(kGather, 0, {.duration = 30});
  tiny.record(kGather, 1).wait(kCompute, 1).kernel(100, "forward").record(kCompute, 0);
  tiny.segment("optimizer").kernel(50, "update");
  const CriticalPath path = path_of(tiny);
  EXPECT_THAT(names_of(path), ElementsAre("all_gather", "forward", "update"));
  EXPECT_EQ(path.length, Nanos(180));
  EXPECT_EQ(path.before_step, Nanos(30));
}

TEST(CriticalPath, CountsOnlyTheTimeBeforeTheStepOfAnOpThatReachesIntoIt) {
  // As above with a gather of 70: it runs from -50 to 20.
  Tiny tiny;
  tiny.segment("only").wait(kGather, 0, 1).collective(kGather, 0, {.duration = 70});
  tiny.record(kGather, 1).wait(kCompute, 1).kernel(100, "forward").record(kCompute, 0);
  tiny.segment("optimizer").kernel(50, "update");
  const CriticalPath path = path_of(tiny);
  EXPECT_EQ(path.length, Nanos(220));
  EXPECT_EQ(path.before_step, Nanos(50));
}

TEST(CriticalPath, RepeatedSegmentsCountEachInstance) {
  Tiny tiny;
  tiny.segment("first").kernel(1).segment("middle", 3).kernel(7).segment("last").kernel(2);
  const CriticalPath path = path_of(tiny);
  EXPECT_EQ(path.length, Nanos(1 + 3 * 7 + 2));
  EXPECT_EQ(path.ops.size(), 5U);
  EXPECT_EQ(path.ops[3].instance, 2);
}

TEST(CriticalPath, LongStepsAreAbridgedToTwoInstances) {
  Tiny tiny;
  tiny.segment("first").kernel(1).segment("middle", kMostSpans).kernel(7).segment("last").kernel(2);
  const CriticalPath path = path_of(tiny);
  EXPECT_TRUE(path.abridged);
  EXPECT_EQ(path.length, Nanos(1 + 2 * 7 + 2));
}

TEST(CriticalPath, MultitudesOfOpsWithoutDurationAreAbridgedToo) {
  Tiny tiny;
  tiny.segment("first").kernel(1).segment("middle", 8 * kMostSpans).record(kCompute, 0);
  const CriticalPath path = path_of(tiny);
  EXPECT_TRUE(path.abridged);
  EXPECT_EQ(path.length, Nanos(1));
}

TEST(CriticalPath, EmptyPlanHasNone) {
  Tiny tiny;
  const CriticalPath path = path_of(tiny);
  EXPECT_TRUE(path.ops.empty());
  EXPECT_EQ(path.length, Nanos(0));
  EXPECT_EQ(path.bounding_unit, "");
}

}  // namespace
}  // namespace mfsdp
