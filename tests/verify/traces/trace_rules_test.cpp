// Rules for traces. For each rule: a trace that obeys it and traces that break it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "tests/support/kineto_text.hpp"
#include "tests/support/verdict_words.hpp"
#include "verify/traces/trace_report.hpp"

namespace mfsdp::traces {
namespace {

using test::FakeActivity;
using test::FakeCollective;
using test::kineto_text;
using test::KinetoText;
using test::kMicro;
using test::rules_of;
using test::undecided;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Body = std::function<void(KinetoText&)>;

constexpr int kCompute = 7;
constexpr int kGathers = 22;
constexpr int kReductions = 26;

RuleVerdict verdict_of(const std::string& text, const ReportSettings& settings = {}) {
  const auto trace = parse_kineto(text, "t.json");
  EXPECT_TRUE(trace) << trace.error().message();
  if (!trace) return {};
  const auto report = analyse_trace(*trace, settings);
  EXPECT_TRUE(report) << report.error().message();
  return report ? report->verdict : RuleVerdict{};
}
RuleVerdict verdict_of(const Body& body) { return verdict_of(kineto_text(body)); }

/// All times in microseconds.
void gemm(KinetoText& t, std::int64_t begin, std::int64_t end) {
  t.activity({.name = "nvjet_gemm", .begin = begin * kMicro, .duration = (end - begin) * kMicro});
}

struct Call {
  std::int64_t launched;  ///< 0: not in the trace
  std::int64_t correlation;
  std::int64_t begin;
  std::int64_t end;
  int stream;
};
void collective(KinetoText& t, const Call& call, const std::string& kernel,
                const FakeCollective& what) {
  if (call.launched != 0)
    t.host("cuda_runtime", "cudaLaunchKernelExC", call.launched * kMicro, kMicro, call.correlation);
  t.collective({.name = kernel,
                .begin = call.begin * kMicro,
                .duration = (call.end - call.begin) * kMicro,
                .stream = call.stream,
                .correlation = call.correlation},
               what);
}
void gather(KinetoText& t, const Call& call, const FakeCollective& what = {}) {
  collective(t, call, "ncclDevKernel_AllGather_RING_LL", what);
}
void reduce_scatter(KinetoText& t, const Call& call,
                    const FakeCollective& what = {.op = "_reduce_scatter_base", .group = "1"}) {
  collective(t, call, "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", what);
}

// ---- MF813: gathers that waited for a reduction

/// A reduction (call 5) ends at 300. A gather (call 11), launched at 30, begins after it, and
/// compute waits for the gather. All of its 100 us are lost, as it waited longer (270 us).
void serialised(KinetoText& t) {
  gemm(t, 0, 100);
  reduce_scatter(t, {10, 5, 20, 300, kReductions});
  gather(t, {30, 11, 302, 402, kGathers});
  gemm(t, 405, 500);
}
/// Adds a wait, so that the trace counts as one with waits.
void other_wait(KinetoText& t) { t.wait(kCompute, 1 * kMicro, 3, kGathers, 2); }

TEST(TraceRules, AGatherThatOnlyLaunchOrderHeldUpIsFound) {
  const RuleVerdict verdict = verdict_of([](KinetoText& t) {
    serialised(t);
    other_wait(t);
  });
  ASSERT_THAT(rules_of(verdict), ElementsAre("MF813"));
  EXPECT_THAT(verdict.findings[0].message, HasSubstr("1 gather began only as"));
  EXPECT_THAT(verdict.findings[0].message, HasSubstr("compute lost 0.100 ms"));
  EXPECT_THAT(verdict.findings[0].message,
              HasSubstr("all_gather on stream 22 (group 0), launched "
                        "0.272 ms earlier, ran after reduce_scatter on "
                        "stream 26 (group 1)"));
  EXPECT_THAT(undecided(verdict), IsEmpty());
  EXPECT_FALSE(verdict.good());
}

TEST(TraceRules, AWaitExplainsAGatherThatBeginsAfterAReduction) {
  const RuleVerdict direct = verdict_of([](KinetoText& t) {
    serialised(t);
    t.wait(kGathers, 25 * kMicro, 10, kReductions, 6);
  });
  EXPECT_TRUE(direct.good());
  const RuleVerdict by_way_of_compute = verdict_of([](KinetoText& t) {
    serialised(t);
    t.wait(kCompute, 12 * kMicro, 7, kReductions, 6);
    t.wait(kGathers, 25 * kMicro, 10, kCompute, 9);
  });
  EXPECT_TRUE(by_way_of_compute.good());
}

TEST(TraceRules, AWaitForWhatCameBeforeTheReductionExplainsNothing) {
  const RuleVerdict earlier_record = verdict_of([](KinetoText& t) {
    serialised(t);
    t.wait(kGathers, 25 * kMicro, 10, kReductions, 4);
  });
  EXPECT_THAT(rules_of(earlier_record), ElementsAre("MF813"));
  const RuleVerdict compute_waits_later = verdict_of([](KinetoText& t) {
    serialised(t);
    t.wait(kCompute, 26 * kMicro, 10, kReductions, 6);
    t.wait(kGathers, 25 * kMicro, 9, kCompute, 8);  // recorded before compute waited
  });
  EXPECT_THAT(rules_of(compute_waits_later), ElementsAre("MF813"));
}

/// NCCL orders launches by its own waits, on a stream without work.
TEST(TraceRules, WaitsByAStreamThatRunsNothingAreNotThePrograms) {
  const auto by_way_of_20 = [](bool runs_something) {
    return verdict_of([=](KinetoText& t) {
      serialised(t);
      if (runs_something)
        t.activity({.name = "copy_in", .begin = 0, .duration = kMicro, .stream = 20});
      t.wait(20, 12 * kMicro, 7, kReductions, 6);
      t.wait(kGathers, 25 * kMicro, 10, 20, 9);
    });
  };
  EXPECT_THAT(rules_of(by_way_of_20(false)), ElementsAre("MF813"));
  EXPECT_TRUE(by_way_of_20(true).good());
}

TEST(TraceRules, WithoutRecordsOfEventsLaunchOrderIsNotJudged) {
  const RuleVerdict none = verdict_of([](KinetoText& t) {
    serialised(t);
    t.wait(kGathers, 25 * kMicro, 10, -1, -1);
  });
  EXPECT_THAT(rules_of(none), IsEmpty());
  ASSERT_THAT(undecided(none), ElementsAre("MF813"));
  EXPECT_THAT(none.not_judged[0].reason,
              HasSubstr("none of 1 stream waits names the event record"));
  EXPECT_THAT(none.not_judged[0].reason, HasSubstr("kineto 1552"));
  EXPECT_FALSE(none.good());
  const RuleVerdict this_one = verdict_of([](KinetoText& t) {
    serialised(t);
    other_wait(t);
    t.wait(kGathers, 25 * kMicro, 10, -1, -1);
  });
  EXPECT_THAT(undecided(this_one), ElementsAre("MF813"));
}

/// MF813 is not judged even if no gather looks delayed: the trace should contain waits.
TEST(TraceRules, DroppedRecordsAreToldOfAnyTraceWithGathersAndReductions) {
  const auto body = [](bool with_reduction) {
    return verdict_of([=](KinetoText& t) {
      gemm(t, 0, 500);
      gather(t, {10, 4, 20, 100, kGathers});
      if (with_reduction) reduce_scatter(t, {30, 5, 40, 300, kReductions});
      t.wait(kGathers, 5 * kMicro, 3, -1, -1);
      t.host("cuda_runtime", "cudaFree", 50 * kMicro, kMicro);
      t.host("cuda_runtime", "cudaMalloc", 60 * kMicro, kMicro);
      t.step(1, 0, 500 * kMicro, false);
    });
  };
  EXPECT_THAT(undecided(body(true)), ElementsAre("MF813"));
  EXPECT_THAT(rules_of(body(true)), ElementsAre("MF811")) << "other rules go on";
  EXPECT_THAT(undecided(body(false)), IsEmpty());
}

TEST(TraceRules, WithoutWaitsLaunchOrderIsNotJudgedWhereItMatters) {
  const RuleVerdict suspicious = verdict_of(serialised);
  ASSERT_THAT(undecided(suspicious), ElementsAre("MF813"));
  EXPECT_THAT(suspicious.not_judged[0].reason, HasSubstr("enable_cuda_sync_events=True"));
  EXPECT_THAT(rules_of(suspicious), IsEmpty());
}

TEST(TraceRules, AGatherThatWaitedForNothingIsFine) {
  const auto with_gather = [](const Call& call, const std::string& group) {
    return verdict_of([&](KinetoText& t) {
      gemm(t, 0, 100);
      reduce_scatter(t, {10, 5, 20, 300, kReductions});
      gather(t, call, {.group = group});
      gemm(t, call.end + 3, call.end + 100);
      other_wait(t);
    });
  };
  EXPECT_FALSE(with_gather({30, 11, 302, 402, kGathers}, "0").good());
  EXPECT_TRUE(with_gather({30, 11, 102, 202, kGathers}, "0").good()) << "beside the reduction";
  EXPECT_TRUE(with_gather({30, 11, 350, 450, kGathers}, "0").good()) << "long after it";
  EXPECT_TRUE(with_gather({299, 11, 302, 402, kGathers}, "0").good()) << "launched at its end";
  EXPECT_TRUE(with_gather({30, 11, 302, 402, kGathers}, "1").good()) << "one communicator";
  EXPECT_TRUE(with_gather({5, 4, 302, 402, kGathers}, "0").good()) << "launched before it";
}

// ---- MF814: streams of reductions

RuleVerdict on_compute(const std::string& kernel, const FakeCollective& what, int stream) {
  return verdict_of([&](KinetoText& t) {
    gemm(t, 0, 100);
    collective(t, {10, 5, 100, 200, stream}, kernel, what);
    gemm(t, 202, 300);
  });
}

TEST(TraceRules, ReductionsOnTheStreamOfComputeAreFound) {
  const std::string scatter = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL";
  const RuleVerdict verdict = on_compute(scatter, {}, kCompute);
  ASSERT_THAT(rules_of(verdict), ElementsAre("MF814"));
  EXPECT_THAT(verdict.findings[0].message,
              HasSubstr("1 reduction of gradients ran on the stream of compute, and compute lost "
                        "0.100 ms"));
  EXPECT_TRUE(on_compute(scatter, {}, kReductions).good());
}

TEST(TraceRules, GroupsThatDivideTheModelReduceNoGradients) {
  const std::string scatter = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL";
  const auto good = [&](const std::string& description) {
    return on_compute(scatter, {.description = description}, kCompute).good();
  };
  EXPECT_TRUE(good("TENSOR_MODEL_PARALLEL_GROUP"));
  EXPECT_TRUE(good("mesh_tp"));
  EXPECT_FALSE(good("DATA_PARALLEL_GROUP_WITH_CP"));
  EXPECT_FALSE(good("mesh_dp_shard"));
  EXPECT_FALSE(good(""));
}

TEST(TraceRules, SmallAllReducesBelongOnTheStreamOfCompute) {
  const auto of_elements = [](std::int64_t elements) {
    return on_compute(
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL",
        {.op = "allreduce", .in_elements = elements, .out_elements = elements, .dtype = "Float"},
        kCompute);
  };
  EXPECT_TRUE(of_elements(1).good());
  EXPECT_TRUE(of_elements(262'143).good());
  EXPECT_FALSE(of_elements(262'144).good());  // 4 bytes each: 1 MiB
}

RuleVerdict on_gathers(std::int64_t launched, int stream) {
  return verdict_of([&](KinetoText& t) {
    gemm(t, 0, 120);
    reduce_scatter(t, {50, 5, 100, 300, stream});
    gather(t, {launched, 6, 302, 402, kGathers});
    gemm(t, 405, 900);
  });
}

TEST(TraceRules, ReductionsOnTheStreamOfGathersAreFound) {
  const RuleVerdict verdict = on_gathers(60, kGathers);
  ASSERT_THAT(rules_of(verdict), ElementsAre("MF814"));
  EXPECT_THAT(verdict.findings[0].message, HasSubstr("on the stream of gathers, and compute lost "
                                                     "0.100 ms"));
  EXPECT_TRUE(on_gathers(299, kGathers).good()) << "launched as the reduction ended";
}

TEST(TraceRules, WithoutLaunchesStreamsOfReductionsAreNotJudged) {
  const RuleVerdict verdict = on_gathers(0, kGathers);
  EXPECT_THAT(rules_of(verdict), IsEmpty());
  ASSERT_THAT(undecided(verdict), ElementsAre("MF814"));
  EXPECT_THAT(verdict.not_judged[0].reason, HasSubstr("launches are not in the trace"));
}

// ---- MF811, MF812: the allocator

/// Host calls at the given microseconds, in two steps of a millisecond each.
RuleVerdict with_host_calls(const std::vector<std::pair<std::string, std::int64_t>>& calls,
                            bool steps = true) {
  return verdict_of([&](KinetoText& t) {
    gemm(t, 0, 2000);
    for (const auto& [name, begin] : calls) t.host("cuda_runtime", name, begin * kMicro, kMicro);
    if (!steps) return;
    t.step(3, 0, 1000 * kMicro, false);
    t.step(4, 1000 * kMicro, 1000 * kMicro, false);
  });
}

TEST(TraceRules, AnAllocatorThatGivesBackAndAsksAgainIsFound) {
  const RuleVerdict verdict =
      with_host_calls({{"cudaMalloc", 1200}, {"cudaFree", 1100}, {"cudaFree", 1101}});
  ASSERT_THAT(rules_of(verdict), ElementsAre("MF811"));
  EXPECT_THAT(verdict.findings[0].message, HasSubstr("1 step, the first is step 4"));
  EXPECT_THAT(verdict.findings[0].message, HasSubstr("1 time (cudaMalloc) and returned 2 times"));
}

TEST(TraceRules, GrowthOfTheCacheIsANote) {
  const RuleVerdict verdict = with_host_calls({{"cudaMalloc", 100}, {"cudaFree", 1100}});
  EXPECT_THAT(rules_of(verdict), ElementsAre("MF812"));
  EXPECT_TRUE(verdict.good());
}

TEST(TraceRules, CallsOutsideOfStepsAreNoRetries) {
  EXPECT_THAT(rules_of(with_host_calls({{"cudaFree", 2100}, {"cudaMalloc", 2200}})), IsEmpty());
  EXPECT_THAT(rules_of(with_host_calls({{"cudaFree", 100}})), IsEmpty());
  EXPECT_THAT(rules_of(with_host_calls({{"cudaFreeHost", 100}, {"cudaMallocHost", 200}})),
              IsEmpty());
}

TEST(TraceRules, WithoutStepsTheAllocatorIsNotJudged) {
  const RuleVerdict verdict = with_host_calls({{"cudaFree", 100}, {"cudaMalloc", 200}}, false);
  EXPECT_THAT(undecided(verdict), ElementsAre("MF811"));
  EXPECT_TRUE(with_host_calls({}, false).good());
}

// ---- MF810: copy engines

const Body kGatherKernel = [](KinetoText& t) {
  gemm(t, 0, 200);
  gather(t, {10, 4, 20, 100, kGathers});
};

std::string with_cta_policy(std::string text, const std::string& value) {
  const std::string before = "\"displayTimeUnit\"";
  return text.replace(text.find(before), 0, "\"NCCL_CTA_POLICY\": " + value + ", ");
}

TEST(TraceRules, GatherKernelsAreFoundWhereCopyEnginesWereAskedFor) {
  const std::string text = kineto_text(kGatherKernel);
  ReportSettings asked;
  asked.cta_policy = "2";
  EXPECT_TRUE(verdict_of(text).good());
  for (const char* policy : {"\"2\"", "2", "\"ZERO\"", "\"3\""}) {
    const RuleVerdict verdict = verdict_of(with_cta_policy(text, policy));
    ASSERT_THAT(rules_of(verdict), ElementsAre("MF810")) << policy;
    EXPECT_THAT(verdict.findings[0].message, HasSubstr("1 of 1 gathers of group 0 ran as NCCL"));
  }
  for (const char* policy : {"\"1\"", "0", "\"\"", "\"EFFICIENCY\""})
    EXPECT_TRUE(verdict_of(with_cta_policy(text, policy)).good()) << policy;
  EXPECT_FALSE(verdict_of(text, asked).good());
}

TEST(TraceRules, GathersOfOneGroupThatGoBothWaysAreFound) {
  const auto copied = [](const std::string& group) {
    return [=](KinetoText& t) {
      gemm(t, 0, 200);
      t.host_collective("_allgather_base", 5 * kMicro, group);
      t.activity({.name = "Memcpy PtoP (Device -> Device)",
                  .begin = 120 * kMicro,
                  .duration = 10 * kMicro,
                  .stream = kGathers,
                  .category = "gpu_memcpy"});
    };
  };
  const auto both = [&](const std::string& group) {
    return verdict_of([&](KinetoText& t) {
      copied(group)(t);
      gather(t, {10, 4, 20, 100, kGathers});
    });
  };
  const RuleVerdict verdict = both("0");
  ASSERT_THAT(rules_of(verdict), ElementsAre("MF810"));
  EXPECT_THAT(verdict.findings[0].message,
              HasSubstr("1 of 2 gathers of group 0 ran as NCCL kernels, though the others ran as "
                        "copies"));
  EXPECT_TRUE(both("9").good()) << "another group";
  EXPECT_TRUE(verdict_of(copied("0")).good()) << "all by copies";
}

}  // namespace
}  // namespace mfsdp::traces
