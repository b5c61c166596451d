#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sim/simulator/simulation.hpp"
#include "tests/sim/timed_plan.hpp"

namespace mfsdp {
namespace {

using namespace test;
using testing::HasSubstr;

/// The summary in one line, so that a test can compare it at once.
std::string summary(const Result<Simulation>& result) {
  if (!result) return result.error().message();
  const TimeSummary& time = result->time;
  EXPECT_EQ(time.step, time.compute + time.exposed_communication + time.idle);
  return "step " + std::to_string(time.step.value) + " compute " +
         std::to_string(time.compute.value) + " communication " +
         std::to_string(time.communication.value) + " exposed " +
         std::to_string(time.exposed_communication.value) + " idle " +
         std::to_string(time.idle.value) + " contention " + std::to_string(time.contention.value);
}

const OpTime& find(const Simulation& simulation, const std::string& name,
                   std::int64_t instance = 0) {
  const auto found = std::ranges::find_if(simulation.timeline, [&](const OpTime& time) {
    return time.name == name && time.instance == instance;
  });
  EXPECT_NE(found, simulation.timeline.end()) << name;
  return *found;
}

/// The gather stream starts with the compute stream: e0 is recorded where the step starts.
Tiny gated() {
  Tiny tiny;
  tiny.segment("only").record(kCompute, 0).wait(kGather, 0).wait(kScatter, 0);
  return tiny;
}

/// Ends the step when both collective streams are done, so that the next one starts from rest.
Tiny& join(Tiny& tiny) {
  return tiny.record(kGather, 6).record(kScatter, 7).wait(kCompute, 6).wait(kCompute, 7);
}

TEST(Simulate, EmptyPlanTakesNoTime) {
  Tiny tiny;
  EXPECT_EQ(summary(simulate(tiny)),
            "step 0 compute 0 communication 0 exposed 0 idle 0 contention 0");
  tiny.segment("only").segment("never", 0).kernel(5);
  const auto result = simulate(tiny);
  EXPECT_EQ(summary(result), "step 0 compute 0 communication 0 exposed 0 idle 0 contention 0");
  EXPECT_EQ(result->time.overlap_fraction, 1.0);
}

TEST(Simulate, KernelsOfOneStreamAddUp) {
  Tiny tiny;
  tiny.segment("first").kernel(100).segment("middle", 3).kernel(7).kernel(5).segment("last");
  // 100 + 3 * (7 + 5) = 136
  EXPECT_EQ(summary(simulate(tiny)),
            "step 136 compute 136 communication 0 exposed 0 idle 0 contention 0");
}

TEST(Simulate, GatherIsHiddenUnderTheKernelBeforeItsWait) {
  Tiny tiny = gated();
  tiny.collective(kGather, 0, {.duration = 60}, 1).record(kGather, 1);
  tiny.kernel(40, "one").wait(kCompute, 1).kernel(50, "two");
  // gather [0, 60), one [0, 40), two [60, 110): 20 of 60 exposed.
  const auto result = simulate(tiny);
  EXPECT_EQ(summary(result), "step 110 compute 90 communication 60 exposed 20 idle 0 contention 0");
  EXPECT_DOUBLE_EQ(result->time.overlap_fraction, 1.0 - 20.0 / 60.0);
  ASSERT_EQ(result->exposed_units.size(), 1U);
  EXPECT_EQ(result->exposed_units[0].unit, "b");
  EXPECT_EQ(result->exposed_units[0].exposed, Nanos(20));
  EXPECT_EQ(find(*result, "two").start, Nanos(60));
  EXPECT_EQ(find(*result, "two").end, Nanos(110));
  EXPECT_EQ(find(*result, "all_gather").stream, "all_gather");
  EXPECT_EQ(find(*result, "all_gather").kind, "all_gather");
  EXPECT_EQ(find(*result, "all_gather").segment, "only");
}

TEST(Simulate, TheStepWithinAStepTimeHoldsWhatTheNextOneRunsAhead) {
  // The gather of the next step runs under the optimizer of this one.
  Tiny tiny;
  tiny.segment("only").wait(kGather, 0, 1).collective(kGather, 0, {.duration = 30});
  tiny.record(kGather, 1).wait(kCompute, 1).kernel(100, "forward").record(kCompute, 0);
  tiny.segment("optimizer").kernel(50, "update");
  // Step 1: gather [0, 30), forward [30, 130), update [130, 180) = C(1), second gather [130, 160).
  // Step 2: forward [180, 280), update [280, 330) = C(2), third gather [280, 310), all hidden.
  const auto result = simulate(tiny);
  EXPECT_EQ(summary(result), "step 150 compute 150 communication 30 exposed 0 idle 0 contention 0");
  EXPECT_EQ(result->time.overlap_fraction, 1.0);
  EXPECT_EQ(find(*result, "all_gather").start, Nanos(130 - 180));
  EXPECT_EQ(find(*result, "all_gather").end, Nanos(160 - 180));
}

TEST(Simulate, DistanceOneBindsToTheInstanceBefore) {
  // Each kernel waits for the reduction of the instance before; the first, for that of the step
  // before. One round is 10 + 25, three of them 105.
  Tiny tiny;
  tiny.segment("middle", 3).wait(kCompute, 0, 1).kernel(10).record(kCompute, 1);
  tiny.wait(kScatter, 1).collective(kScatter, 1, {.duration = 25}).record(kScatter, 0);
  const auto result = simulate(tiny);
  EXPECT_EQ(summary(result), "step 105 compute 30 communication 75 exposed 75 idle 0 contention 0");
  // Times of every instance: 3 * (kernel + collective).
  EXPECT_EQ(result->timeline.size(), 6U);
  EXPECT_TRUE(result->omitted.empty());
  EXPECT_EQ(result->spans.size(), 6U);
  EXPECT_EQ(find(*result, "kernel", 1).start, Nanos(35));
}

TEST(Simulate, OfAStepThatIsTooLongSaysWhichInstancesItLeavesOut) {
  Tiny tiny;
  tiny.segment("middle", kMostSpans).kernel(10);
  tiny.segment("last", 1).kernel(30);
  const auto result = simulate(tiny);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(result->timeline.size(), 3U);  // instances 0 and 1, and the last kernel
  ASSERT_EQ(result->omitted.size(), 1U);
  const OmittedInstances expected{.segment = "middle",
                                  .first = 2,
                                  .count = kMostSpans - 2,
                                  .begin = Nanos(20),
                                  .period = Nanos(10)};
  EXPECT_EQ(result->omitted.front(), expected);
}

TEST(Simulate, AWaitInARepeatedSegmentBindsToTheEarlierSegmentFirst) {
  // e0 is recorded in `first` after 40 ns, then in each instance of `middle` after its own wait.
  // The gather stream: [0, 40) waits, 3 * 10. The kernel of `first` is all of compute.
  Tiny tiny;
  tiny.segment("first").kernel(40).record(kCompute, 0);
  tiny.segment("middle", 3).wait(kGather, 0, 0).collective(kGather, 0, {.duration = 10});
  tiny.record(kGather, 0);
  tiny.segment("last").wait(kCompute, 0).kernel(1);
  EXPECT_EQ(summary(simulate(tiny)),
            "step 71 compute 41 communication 30 exposed 30 idle 0 contention 0");
}

TEST(Simulate, HostWaitHoldsBackWhatIsIssuedAfterIt) {
  Tiny tiny;
  tiny.segment("only").kernel(50).record(kCompute, 0).wait(kCopyOut, 0).copy(20);
  tiny.record(kCopyOut, 1);
  Tiny eager = tiny;
  tiny.host_wait(1).kernel(30);
  eager.kernel(30);
  // kernel [0, 50), copy [50, 70), and only then kernel [70, 100).
  EXPECT_EQ(summary(simulate(tiny)),
            "step 100 compute 80 communication 0 exposed 0 idle 20 contention 0");
  EXPECT_EQ(summary(simulate(eager)),
            "step 80 compute 80 communication 0 exposed 0 idle 0 contention 0");
}

TEST(Simulate, OpsBeginWhenTheHostHasIssuedThem) {
  Tiny tiny;
  tiny.segment("only").kernel(50).kernel(10).kernel(10).record(kCompute, 0).host_wait(0);
  Prices prices = tiny_prices();
  prices.host = [](const Op& op) {
    return Nanos(std::holds_alternative<Kernel>(op.body) ? 30 : 0);
  };
  const auto result = simulate(tiny.program, tiny.plan(), prices);
  // Issued at 30, 60 and 90 after the host has waited for the step before: kernels [30, 80),
  // [80, 90), [90, 100). In all the host needs 90; compute waits for it from 0 to 30.
  EXPECT_EQ(summary(result), "step 100 compute 70 communication 0 exposed 0 idle 30 contention 0");
  EXPECT_EQ(result->time.host, (HostTime{.issue = Nanos(90), .bound = Nanos(30)}));
  EXPECT_FALSE(simulate(tiny)->time.host);
}

TEST(Simulate, AHostThatNeverWaitsRunsAhead) {
  Tiny tiny;
  tiny.segment("only").kernel(50).kernel(50);
  Prices prices = tiny_prices();
  prices.host = [](const Op&) { return Nanos(40); };
  // The first step begins at 40; the second is issued at 120 and 160, before the first ends at 140.
  EXPECT_EQ(summary(simulate(tiny.program, tiny.plan(), prices)),
            "step 100 compute 100 communication 0 exposed 0 idle 0 contention 0");
  prices.host = [](const Op&) { return Nanos(70); };
  // Each kernel is issued 70 after the one before.
  EXPECT_EQ(summary(simulate(tiny.program, tiny.plan(), prices)),
            "step 140 compute 100 communication 0 exposed 0 idle 40 contention 0");
  prices.host = [](const Op&) { return Nanos(-1); };
  EXPECT_THAT(summary(simulate(tiny.program, tiny.plan(), prices)),
              HasSubstr("expected a host time of at least 0 ns, got -1"));
}

TEST(Simulate, CollectivesSlowTheKernelsBesideThem) {
  Tiny tiny = gated();
  tiny.collective(kGather, 0, {.duration = 100, .sms = 1}).kernel(100);
  // 100 ns at 3/4 do 75; the last 25 run alone.
  EXPECT_EQ(summary(simulate(tiny)),
            "step 125 compute 125 communication 100 exposed 0 idle 0 contention 25");
}

TEST(Simulate, CollectivesThatShareALinkShareTheirMemoryTraffic) {
  // Two collectives of 100 on one link: both at half speed until 200. Their traffic, 1/4 of a
  // kernel's speed each, is halved with it: 200 ns at 7/8 of 7/8 do 153 of the kernel, 47 are left.
  Tiny tiny = gated();
  tiny.collective(kGather, 0, {.duration = 100, .memory = 1});
  tiny.collective(kScatter, 1, {.duration = 100, .memory = 1}).kernel(200);
  EXPECT_EQ(summary(simulate(tiny)),
            "step 247 compute 247 communication 200 exposed 0 idle 0 contention 46");
  // Their SMs are taken at any speed: 200 ns at 3/4 of 3/4 do 112.5.
  Tiny sms = gated();
  sms.collective(kGather, 0, {.duration = 100, .sms = 1});
  sms.collective(kScatter, 1, {.duration = 100, .sms = 1}).kernel(200);
  EXPECT_EQ(summary(simulate(sms)),
            "step 288 compute 288 communication 200 exposed 0 idle 0 contention 87");
}

TEST(Simulate, KernelsKeepAQuarterOfTheirSpeed) {
  Tiny tiny = gated();
  tiny.collective(kGather, 0, {.duration = 40, .sms = 4}).kernel(20);
  // 40 ns at 1/4 do 10; 10 more alone.
  EXPECT_EQ(summary(simulate(tiny)),
            "step 50 compute 50 communication 40 exposed 0 idle 0 contention 30");
}

TEST(Simulate, KernelsOfEachClassLoseTheirShare) {
  // In the test's prices, attention loses half of that quarter: 100 ns at 7/8 do 87.5.
  Tiny tiny = gated();
  tiny.collective(kGather, 0, {.duration = 100, .sms = 1});
  tiny.kernel(100, "kernel", kCompute, KernelClass::attention_forward);
  EXPECT_EQ(summary(simulate(tiny)),
            "step 113 compute 113 communication 100 exposed 0 idle 0 contention 12");
}

TEST(Simulate, ProductsOfFewWavesLoseAnother) {
  // Three eighths, where a collective that holds SMs costs a quarter: 80 ns at 5/8 do 50.
  Tiny tiny = gated();
  tiny.collective(kGather, 0, {.duration = 80, .sms = 1});
  tiny.kernel(60, "product", kCompute, KernelClass::memory, true);
  EXPECT_EQ(summary(simulate(tiny)),
            "step 90 compute 90 communication 80 exposed 0 idle 0 contention 30");
  // Nothing to one that holds none, whose traffic costs a quarter; and half to one that holds more.
  Tiny copies = gated();
  copies.collective(kGather, 0, {.duration = 80, .memory = 1});
  copies.kernel(60, "product", kCompute, KernelClass::memory, true);
  EXPECT_EQ(summary(simulate(copies)),
            "step 80 compute 80 communication 80 exposed 0 idle 0 contention 20");
  Tiny more = gated();
  more.collective(kGather, 0, {.duration = 80, .sms = 2});
  more.kernel(60, "product", kCompute, KernelClass::memory, true);
  EXPECT_EQ(summary(simulate(more)),
            "step 100 compute 100 communication 80 exposed 0 idle 0 contention 40");
}

TEST(Simulate, AKernelOfAnotherStreamSlowsComputes) {
  // Compute's does 1.25 ns at 1/8 while it takes its 10, and 48.75 more alone.
  Tiny tiny;
  tiny.segment("first").record(kCompute, 0).wait(kScatter, 0).kernel(10, "beside", kScatter);
  tiny.record(kScatter, 1).kernel(50).wait(kCompute, 1);
  EXPECT_EQ(summary(simulate(tiny)),
            "step 59 compute 59 communication 0 exposed 0 idle 0 contention 8");
  // A GEMM that becomes ready with it runs at half rate meanwhile.
  Tiny product;
  product.segment("first").record(kCompute, 0).wait(kScatter, 0).kernel(10, "beside", kScatter);
  product.record(kScatter, 1).kernel(50, "product", kCompute, KernelClass::product);
  product.wait(kCompute, 1);
  EXPECT_EQ(summary(simulate(product)),
            "step 55 compute 55 communication 0 exposed 0 idle 0 contention 5");
  // Alone it keeps its time.
  Tiny after;
  after.segment("first").kernel(50).record(kCompute, 0);
  after.wait(kScatter, 0).kernel(10, "after", kScatter).record(kScatter, 1).wait(kCompute, 1);
  EXPECT_EQ(summary(simulate(after)),
            "step 60 compute 50 communication 0 exposed 0 idle 10 contention 0");
}

TEST(Simulate, AKernelOfAnotherStreamWaitsForAProductThatRuns) {
  // It is ready at 5, the GEMM ends at 30: [30, 40) beside a kernel of 20, which does 1.25.
  Tiny tiny = gated();
  tiny.collective(kGather, 0, {.duration = 5}).record(kGather, 1);
  tiny.wait(kScatter, 1).kernel(10, "beside", kScatter);
  tiny.kernel(30, "product", kCompute, KernelClass::attention_forward).kernel(20);
  const auto result = simulate(tiny);
  EXPECT_EQ(summary(result), "step 59 compute 59 communication 5 exposed 0 idle 0 contention 8");
  EXPECT_EQ(find(*result, "beside").end - find(*result, "beside").start, Nanos(35));
}

/// A kernel of 20, then one of 30 that a gather of 10 comes up with, then one of 5.
Tiny gather_comes_up_with(KernelClass kind) {
  Tiny tiny;
  tiny.segment("first").kernel(20).record(kCompute, 0).kernel(30, "held", kCompute, kind);
  tiny.wait(kGather, 0).collective(kGather, 0, {.duration = 10}).kernel(5);
  return tiny;
}

TEST(Simulate, ACollectiveWaitsForTheProductThatHoldsTheSms) {
  // Memory-bound kernels let it begin at 20, and so does attention that begins at the same time. A
  // GEMM delays it until 50: its time is then [20, 60), of which 5 are exposed after the last
  // kernel.
  const auto short_wait = "step 55 compute 55 communication 10 exposed 0 idle 0 contention 0";
  Tiny memory = gather_comes_up_with(KernelClass::memory);
  EXPECT_EQ(summary(simulate(memory)), short_wait);
  Tiny attention = gather_comes_up_with(KernelClass::attention_backward);
  EXPECT_EQ(summary(simulate(attention)), short_wait);
  Tiny product = gather_comes_up_with(KernelClass::product);
  const auto result = simulate(product);
  ASSERT_TRUE(result);
  const auto gather =
      std::ranges::find_if(result->spans, [](const OpSpan& span) { return span.op == 4; });
  ASSERT_NE(gather, result->spans.end());
  EXPECT_EQ(gather->end - gather->start, Nanos(40));
}

TEST(Simulate, ACollectiveWaitsForAttentionThatRunsAlready) {
  // It is ready 5 ns after attention began, after a kernel of another stream beside which attention
  // runs at half rate, and waits for the rest: 2.5 are done by then, 27.5 remain.
  Tiny tiny = gated();
  tiny.kernel(5, "delay", kScatter).record(kScatter, 1).wait(kGather, 1);
  tiny.kernel(30, "held", kCompute, KernelClass::attention_forward);
  tiny.collective(kGather, 0, {.duration = 10}).record(kGather, 2).wait(kCompute, 2).kernel(1);
  // [5, 43) is communication, of which [33, 43) has no kernel beside it.
  EXPECT_EQ(summary(simulate(tiny)),
            "step 44 compute 34 communication 38 exposed 10 idle 0 contention 2");
}

TEST(Simulate, CollectivesShareTheBandwidthOfTheirLink) {
  Tiny tiny = gated();
  tiny.collective(kGather, 0, {.duration = 100}, 0);
  tiny.collective(kScatter, 1, {.duration = 50}, 1, CollectiveKind::reduce_scatter);
  // Both at half speed until the second ends at 100; the first has 50 left: 150.
  const auto result = simulate(join(tiny));
  EXPECT_EQ(summary(result),
            "step 150 compute 0 communication 150 exposed 150 idle 0 contention 0");
  EXPECT_EQ(find(*result, "reduce_scatter").end, Nanos(100));
}

TEST(Simulate, LatencyTakesNoBandwidth) {
  Tiny tiny = gated();
  tiny.collective(kGather, 0, {.duration = 100, .latency = 50});
  tiny.collective(kScatter, 1, {.duration = 100, .latency = 50});
  // Each wants half of the link.
  EXPECT_EQ(summary(simulate(tiny)),
            "step 100 compute 0 communication 100 exposed 100 idle 0 contention 0");
}

TEST(Simulate, LinksAreIndependent) {
  Tiny tiny = gated();
  tiny.collective(kGather, 0, {.duration = 100}).collective(kScatter, 2, {.duration = 100});
  EXPECT_EQ(summary(simulate(tiny)),
            "step 100 compute 0 communication 100 exposed 100 idle 0 contention 0");
}

/// Two copies of 100 ns on streams of their own, of which 20 ns move no bytes.
std::int64_t two_copies(std::optional<int> first, std::optional<int> second) {
  Tiny tiny;
  tiny.segment("only").copy(100, kCopyOut).copy(100, kScatter);
  Prices prices = tiny_prices();
  int calls = 0;
  prices.copy = [&](const Copy& copy) {
    return CopyPrice{.duration = Nanos(copy.input.offset),
                     .latency = Nanos(20),
                     .link = calls++ == 0 ? first : second};
  };
  return mfsdp::simulate(tiny.program, tiny.plan(), prices)->time.step.value;
}

TEST(Simulate, CopiesShareTheBandwidthOfTheirLink) {
  EXPECT_EQ(two_copies(2, 2), 160);  // each wants 0.8 of it
  EXPECT_EQ(two_copies(2, 3), 100);
  EXPECT_EQ(two_copies({}, {}), 100);
}

TEST(Simulate, OneCommunicatorRunsItsCollectivesInHostOrder) {
  // The gather is issued first but waits for a kernel of 30; the other stream's turn comes after.
  Tiny tiny = gated();
  tiny.kernel(30).record(kCompute, 1).wait(kGather, 1);
  tiny.collective(kGather, 0, {.duration = 40}, 0);
  tiny.collective(kScatter, 0, {.duration = 40}, 1, CollectiveKind::reduce_scatter);
  const auto result = simulate(join(tiny));
  EXPECT_EQ(summary(result), "step 110 compute 30 communication 80 exposed 80 idle 0 contention 0");
  EXPECT_EQ(find(*result, "all_gather").start, Nanos(30));
  EXPECT_EQ(find(*result, "reduce_scatter").start, Nanos(70));
}

/// The span of a reduction of 10 that is ready at once. A gather of another communicator and link
/// was issued before it and waits for a kernel of 30.
std::string reduction_after_a_gather(bool in_order, Transport of_reduction) {
  Tiny tiny = gated();
  tiny.program.communicators[2].transport = of_reduction;
  tiny.kernel(30).record(kCompute, 1).wait(kGather, 1);
  tiny.collective(kGather, 0, {.duration = 40});
  tiny.collective(kScatter, 2, {.duration = 10}, {}, CollectiveKind::reduce_scatter);
  Prices prices = tiny_prices();
  prices.launches_in_order = in_order;
  const auto result = mfsdp::simulate(tiny.program, join(tiny).plan(), prices);
  const OpTime& reduction = find(*result, "reduce_scatter");
  return std::to_string(reduction.start.value) + " to " + std::to_string(reduction.end.value);
}

TEST(Simulate, CollectivesBeginInTheOrderOfTheirLaunchesWherePricesSaySo) {
  EXPECT_EQ(reduction_after_a_gather(false, Transport::nccl), "0 to 10");
  EXPECT_EQ(reduction_after_a_gather(true, Transport::nccl), "0 to 40");
  EXPECT_EQ(reduction_after_a_gather(true, Transport::copy_engine), "0 to 10");
}

TEST(Simulate, AGroupHasItsPlaceWhereItEnds) {
  // The reduction is issued inside the group, which waits for a kernel of 30, and so before it.
  Tiny tiny = gated();
  tiny.kernel(30).record(kCompute, 1).wait(kGather, 1);
  tiny.op(kGather, "begin", GroupBegin{CommunicatorId(0)});
  tiny.collective(kGather, 0, {.duration = 40});
  tiny.collective(kScatter, 2, {.duration = 10}, {}, CollectiveKind::reduce_scatter);
  tiny.op(kGather, "end", GroupEnd{CommunicatorId(0)});
  Prices prices = tiny_prices();
  prices.launches_in_order = true;
  const auto result = mfsdp::simulate(tiny.program, join(tiny).plan(), prices);
  ASSERT_TRUE(result) << result.error().message();
  EXPECT_EQ(find(*result, "reduce_scatter").end, Nanos(10));
  EXPECT_EQ(find(*result, "all_gather").end, Nanos(70));
}

TEST(Simulate, AGroupIsOneLaunchWithOneLatency) {
  Tiny tiny;
  tiny.segment("only").op(kGather, "begin", GroupBegin{CommunicatorId(0)});
  tiny.collective(kGather, 0, {.duration = 100, .latency = 20});
  tiny.collective(kGather, 0, {.duration = 50, .latency = 20});
  tiny.collective(kGather, 0, {.duration = 50, .latency = 10});
  tiny.op(kGather, "end", GroupEnd{CommunicatorId(0)});
  // 80 + 30 + 40 + 20
  const auto result = simulate(tiny);
  EXPECT_EQ(summary(result),
            "step 170 compute 0 communication 170 exposed 170 idle 0 contention 0");
  EXPECT_EQ(result->timeline.size(), 3U);
}

TEST(Simulate, ExposedTimeBelongsToTheCollectiveThatComputeWaitsFor) {
  // Compute waits for the gather of "a" (30) while the longer reduction of "b" (80) continues; no
  // other op waits for the rest of it. Links differ, so neither slows the other down.
  Tiny tiny = gated();
  tiny.collective(kGather, 0, {.duration = 30}, 0).record(kGather, 1);
  tiny.collective(kScatter, 2, {.duration = 80}, 1);
  tiny.wait(kCompute, 1).kernel(10);
  const auto result = simulate(tiny);
  EXPECT_EQ(summary(result), "step 80 compute 10 communication 80 exposed 70 idle 0 contention 0");
  ASSERT_EQ(result->exposed_units.size(), 2U);
  EXPECT_EQ(result->exposed_units[0].unit, "b");
  EXPECT_EQ(result->exposed_units[0].exposed, Nanos(40));
  EXPECT_EQ(result->exposed_units[1].unit, "a");
  EXPECT_EQ(result->exposed_units[1].exposed, Nanos(30));
  EXPECT_THAT(result->exposed_by_communicator, testing::ElementsAre(30, 0, 40));
}

TEST(Simulate, ExposedTimeThatNobodyWaitsForBelongsToTheLongest) {
  // The host waits, not the compute stream: [0, 60) for "b", which has most time left.
  Tiny tiny = gated();
  tiny.collective(kGather, 0, {.duration = 30}, 0);
  tiny.collective(kScatter, 2, {.duration = 60}, 1).record(kScatter, 1).host_wait(1).kernel(5);
  const auto result = simulate(tiny);
  EXPECT_EQ(summary(result), "step 65 compute 5 communication 60 exposed 60 idle 0 contention 0");
  ASSERT_EQ(result->exposed_units.size(), 1U);
  EXPECT_EQ(result->exposed_units[0].unit, "b");
}

TEST(Simulate, TrafficCountsWhatARankSends) {
  // bf16, 4 ranks, twice a step. all_gather: 100 elements * 2 bytes * 3; all_reduce: 2 * 3/4 * 200.
  Tiny tiny;
  tiny.segment("middle", 2).collective(kGather, 0, {.duration = 100});
  tiny.collective(kScatter, 1, {.duration = 10}, {}, CollectiveKind::reduce_scatter);
  tiny.collective(kScatter, 1, {.duration = 100}, {}, CollectiveKind::all_reduce);
  const auto result = simulate(tiny);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->traffic.all_gather, Bytes(2 * 600));
  EXPECT_EQ(result->traffic.reduce_scatter, Bytes(2 * 60));
  EXPECT_EQ(result->traffic.all_reduce, Bytes(2 * 300));
}

TEST(Simulate, MemoryFollowsAcquireAndRelease) {
  Tiny tiny;
  tiny.buffer(1000, Category::model_weight, 0, true).buffer(7000, Category::workspace, 1);
  tiny.buffer(300, Category::activation).buffer(50, Category::workspace);
  tiny.segment("only").acquire(kCompute, 2).acquire(kCompute, 1).kernel(10, "forward");
  tiny.acquire(kCompute, 3).kernel(20, "backward").release(kCompute, 3).release(kCompute, 1);
  tiny.release(kCompute, 2).kernel(5, "update");
  const auto result = simulate(tiny);
  ASSERT_TRUE(result) << result.error().message();
  const auto total = [](const MemoryPoint& point) {
    std::int64_t sum = 0;
    for (const Bytes bytes : point.categories) sum += bytes.value;
    return std::pair(point.at.value, sum);
  };
  std::vector<std::pair<std::int64_t, std::int64_t>> points;
  for (const MemoryPoint& point : result->memory_timeline) points.push_back(total(point));
  // Host memory (7000) does not count. The window ends with the update, before the next acquire.
  EXPECT_THAT(points,
              testing::ElementsAre(std::pair(0, 1000), std::pair(0, 1300), std::pair(10, 1350),
                                   std::pair(30, 1300), std::pair(30, 1000)));
  const MemoryPoint& most = result->memory_timeline.at(2);
  EXPECT_EQ(most.categories[static_cast<std::size_t>(Category::activation)], Bytes(300));
  EXPECT_EQ(most.categories[static_cast<std::size_t>(Category::model_weight)], Bytes(1000));
  EXPECT_EQ(most.categories[static_cast<std::size_t>(Category::workspace)], Bytes(50));
}

TEST(Simulate, BuffersMayLiveAcrossSegmentsAndSteps) {
  Tiny tiny;
  tiny.buffer(100, Category::activation).segment("only").kernel(10).release(kCompute, 0);
  tiny.kernel(10).acquire(kCompute, 0);
  tiny.plan().segments[0].live_in = {BufferId(0)};
  const auto result = simulate(tiny);
  ASSERT_TRUE(result) << result.error().message();
  ASSERT_FALSE(result->memory_timeline.empty());
  EXPECT_EQ(
      result->memory_timeline.front().categories[static_cast<std::size_t>(Category::activation)],
      Bytes(100));
}

}  // namespace
}  // namespace mfsdp
