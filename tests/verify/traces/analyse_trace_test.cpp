#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>

#include "tests/support/kineto_text.hpp"
#include "verify/traces/trace_report.hpp"

namespace mfsdp::traces {
namespace {

using test::FakeActivity;
using test::kineto_text;
using test::KinetoText;
using test::kMicro;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

const std::string kGather = "ncclDevKernel_AllGather_RING_LL";
const std::string kScatter = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL";

TraceReport analyse(const std::function<void(KinetoText&)>& body, ReportSettings settings = {}) {
  const auto trace = parse_kineto(kineto_text(body), "t.json");
  EXPECT_TRUE(trace) << trace.error().message();
  if (!trace) return {};
  auto report = analyse_trace(*trace, settings);
  EXPECT_TRUE(report) << report.error().message();
  return report ? *report : TraceReport{};
}

// ---- brute force: counts each nanosecond --------------------------------------------------------

constexpr std::int64_t kEnd = 120;  ///< ns; random traces end before

struct Random {
  std::vector<FakeActivity> activities;
  std::vector<std::array<std::int64_t, 2>> steps;  ///< number, begin
};

bool is_call(const FakeActivity& a) { return a.name.starts_with("nccl"); }
bool is_copy(const FakeActivity& a) { return a.category != "kernel"; }

Random random_trace() {
  Random trace;
  const int count = *rc::gen::inRange(1, 30);
  for (int i = 0; i < count; ++i) {
    FakeActivity a;
    a.begin = *rc::gen::inRange<std::int64_t>(0, kEnd - 20);
    a.duration = *rc::gen::inRange<std::int64_t>(0, 20);
    a.device = *rc::gen::inRange(0, 2);
    a.stream = *rc::gen::inRange(0, 3);
    const int kind = *rc::gen::inRange(0, 5);
    if (kind == 1) a.name = kGather;
    if (kind == 2) a.name = kScatter;
    if (kind == 3) a.category = "gpu_memcpy";
    if (kind == 4) a.category = "gpu_memset";
    trace.activities.push_back(a);
  }
  std::int64_t begin = 0;
  for (std::int64_t step = 0; step < *rc::gen::inRange(0, 4); ++step) {
    begin += *rc::gen::inRange<std::int64_t>(1, 40);
    trace.steps.push_back({step, begin});
  }
  return trace;
}

/// Kinds of activity that run on a device in one nanosecond.
struct Instant {
  bool compute = false;
  bool call = false;
  bool copy = false;
};

std::vector<Instant> instants_of(const Random& trace, int device) {
  std::vector<Instant> instants(kEnd + 200);
  for (const FakeActivity& a : trace.activities)
    for (std::int64_t t = a.begin; a.device == device && t < a.begin + a.duration; ++t) {
      Instant& instant = instants[static_cast<std::size_t>(t)];
      (is_copy(a) ? instant.copy : is_call(a) ? instant.call : instant.compute) = true;
    }
  return instants;
}

TimeSplit brute_split(const std::vector<Instant>& instants, std::int64_t begin, std::int64_t end) {
  TimeSplit split;
  for (std::int64_t t = begin; t < end; ++t) {
    const Instant& now = instants[static_cast<std::size_t>(t)];
    split.span += Nanos(1);
    (now.compute ? split.compute
     : now.call  ? split.exposed
     : now.copy  ? split.copies
                 : split.idle) += Nanos(1);
  }
  return split;
}

RC_GTEST_PROP(AnalyseTrace, AgreesWithBruteForce, ()) {
  const Random random = random_trace();
  const TraceReport report = analyse([&](KinetoText& t) {
    for (const FakeActivity& a : random.activities) t.activity(a);
    for (const auto& [step, begin] : random.steps) t.step(step, begin, 30, false);
  });
  for (const DeviceReport& device : report.devices) {
    const std::vector<Instant> instants = instants_of(random, device.device);
    std::int64_t first = kEnd;
    std::int64_t last = 0;
    Nanos exposed;
    Nanos time;
    for (const FakeActivity& a : random.activities) {
      if (a.device != device.device || a.duration == 0) continue;
      first = std::min(first, a.begin);
      last = std::max(last, a.begin + a.duration);
      for (std::int64_t t = a.begin; is_call(a) && !is_copy(a) && t < a.begin + a.duration; ++t) {
        time += Nanos(1);
        if (!instants[static_cast<std::size_t>(t)].compute) exposed += Nanos(1);
      }
    }
    if (first < last) {
      RC_ASSERT(device.begin == Nanos(first));
      RC_ASSERT(device.time == brute_split(instants, first, last));
    }
    Nanos told_exposed;
    Nanos told_time;
    for (const CollectiveSummary& row : device.collectives) {
      told_exposed += row.exposed;
      told_time += row.time;
    }
    RC_ASSERT(told_exposed == exposed);
    RC_ASSERT(told_time == time);
    RC_ASSERT(device.steps.size() == random.steps.size());
    for (std::size_t i = 0; i < random.steps.size(); ++i) {
      const std::int64_t begin = random.steps[i][1];
      const std::int64_t end = i + 1 < random.steps.size() ? random.steps[i + 1][1] : begin + 30;
      RC_ASSERT(device.steps[i].time == brute_split(instants, begin, end));
    }
  }
}

RC_GTEST_PROP(AnalyseTrace, TimeIsSpentOnce, ()) {
  const Random random = random_trace();
  const TraceReport report = analyse([&](KinetoText& t) {
    for (const FakeActivity& a : random.activities) t.activity(a);
  });
  for (const DeviceReport& device : report.devices) {
    const TimeSplit& time = device.time;
    RC_ASSERT(time.span == time.compute + time.exposed + time.copies + time.idle);
    Nanos exposed;
    for (const CollectiveSummary& row : device.collectives) exposed += row.exposed;
    RC_ASSERT(exposed >= time.exposed);  // calls may overlap each other
  }
}

// ---- by hand ------------------------------------------------------------------------------------

TEST(AnalyseTrace, SplitsAStep) {
  // compute  |0      100|            |150    250|
  // gather        |50            150|
  // copy                                    |240   260|
  const TraceReport report = analyse([](KinetoText& t) {
    t.activity({.name = "gemm", .begin = 0, .duration = 100 * kMicro});
    t.collective({.name = kGather, .begin = 50 * kMicro, .duration = 100 * kMicro, .stream = 20},
                 {.out_elements = 1 << 20});
    t.activity({.name = "gemm", .begin = 150 * kMicro, .duration = 100 * kMicro});
    t.activity({.name = "Memcpy DtoH",
                .begin = 240 * kMicro,
                .duration = 20 * kMicro,
                .stream = 9,
                .category = "gpu_memcpy"});
  });
  ASSERT_THAT(report.devices, SizeIs(1));
  const DeviceReport& device = report.devices[0];
  EXPECT_EQ(device.time, (TimeSplit{.span = Nanos(260 * kMicro),
                                    .compute = Nanos(200 * kMicro),
                                    .exposed = Nanos(50 * kMicro),
                                    .copies = Nanos(10 * kMicro),
                                    .idle = Nanos(0)}));
  ASSERT_THAT(device.collectives, SizeIs(1));
  const CollectiveSummary& gathers = device.collectives[0];
  EXPECT_EQ(gathers.exposed, Nanos(50 * kMicro));
  EXPECT_EQ(gathers.bytes, Bytes(2 << 20));  // bf16
  EXPECT_EQ(gathers.group, "0");
  ASSERT_THAT(device.kinds, SizeIs(3));
  EXPECT_EQ(device.kinds[0].kind, "gemm");
  EXPECT_EQ(device.kinds[0].kernels, 2);
  EXPECT_EQ(device.kinds[1].kind, "nccl all_gather");
  EXPECT_EQ(device.kinds[2].kind, "copy");
}

/// compute  |0         100|                |180    300|
/// gather                    launch 60, |80      180|, the stream free from 0
std::function<void(KinetoText&)> late_gather(std::int64_t launch) {
  return [launch](KinetoText& t) {
    t.activity({.name = "gemm", .begin = 0, .duration = 100 * kMicro});
    t.host("cuda_runtime", "cudaLaunchKernelExC", launch * kMicro, 2 * kMicro, 9);
    t.collective({.name = kGather,
                  .begin = 80 * kMicro,
                  .duration = 100 * kMicro,
                  .stream = 20,
                  .correlation = 9},
                 {});
    t.activity({.name = "gemm", .begin = 180 * kMicro, .duration = 120 * kMicro});
  };
}

TEST(AnalyseTrace, FindsGathersThatBeganTooLate) {
  const DeviceReport device = analyse(late_gather(60)).devices.at(0);
  ASSERT_THAT(device.late_gathers, SizeIs(1));
  const LateGather& late = device.late_gathers[0];
  EXPECT_EQ(late.stall, Nanos(80 * kMicro));       // 100 to 180
  EXPECT_EQ(late.could_hide, Nanos(80 * kMicro));  // compute ran all of 0 to 80
  EXPECT_EQ(late.free_before_launch, Nanos(60 * kMicro));
  EXPECT_EQ(late.free_after_launch, Nanos(20 * kMicro));
  EXPECT_TRUE(late.launch_known);
  EXPECT_EQ(device.could_hide, Nanos(80 * kMicro));
}

TEST(AnalyseTrace, AGatherIsNotLateWhereItCouldNotBeginEarlier) {
  // Its stream was busy with another gather until it began.
  const DeviceReport queued =
      analyse([](KinetoText& t) {
        t.collective({.name = kGather, .begin = 0, .duration = 79 * kMicro, .stream = 20}, {});
        late_gather(60)(t);
      }).devices.at(0);
  EXPECT_THAT(queued.late_gathers, IsEmpty());  // 1 us of compute in 79 to 80
  // Compute does not go on after it.
  const DeviceReport last =
      analyse([](KinetoText& t) {
        t.activity({.name = "gemm", .begin = 0, .duration = 100 * kMicro});
        t.collective(
            {.name = kGather, .begin = 80 * kMicro, .duration = 100 * kMicro, .stream = 20}, {});
      }).devices.at(0);
  EXPECT_THAT(last.late_gathers, IsEmpty());
}

TEST(AnalyseTrace, TheWorstLateGathersAreListed) {
  const auto many = [](KinetoText& t) {
    for (std::int64_t i = 0; i < 5; ++i) {
      const std::int64_t begin = i * 1'000 * kMicro;
      t.activity({.name = "gemm", .begin = begin, .duration = 100 * kMicro});
      t.collective({.name = kGather,
                    .begin = begin + 90 * kMicro,
                    .duration = (20 + 10 * i) * kMicro,
                    .stream = 20},
                   {});
      t.activity({.name = "gemm", .begin = begin + (110 + 10 * i) * kMicro, .duration = kMicro});
    }
  };
  const DeviceReport device = analyse(many, {.most_listed = 2}).devices.at(0);
  EXPECT_EQ(device.late_gather_count, 5);
  ASSERT_THAT(device.late_gathers, SizeIs(2));
  EXPECT_EQ(device.late_gathers[0].stall, Nanos(50 * kMicro));  // 20 + 40 - 10
  EXPECT_EQ(device.could_hide, Nanos((10 + 20 + 30 + 40 + 50) * kMicro));
}

TEST(AnalyseTrace, FindsCollectivesQueuedBehindOthers) {
  // A reduce-scatter of 100 us; a gather on its stream, launched at 30, begins as it ends.
  const DeviceReport device =
      analyse([](KinetoText& t) {
        t.host("cuda_runtime", "cudaLaunchKernelExC", 0, kMicro, 1);
        t.host("cuda_runtime", "cudaLaunchKernelExC", 30 * kMicro, kMicro, 2);
        t.host("cuda_runtime", "cudaLaunchKernelExC", 400 * kMicro, kMicro, 3);
        t.collective({.name = kScatter,
                      .begin = 10 * kMicro,
                      .duration = 100 * kMicro,
                      .stream = 20,
                      .correlation = 1},
                     {.group = "dp"});
        t.collective({.name = kGather,
                      .begin = 112 * kMicro,
                      .duration = 50 * kMicro,
                      .stream = 20,
                      .correlation = 2},
                     {.group = "dp"});
        // Launched long after: it does not wait. The last one's launch is not in the trace.
        t.collective({.name = kGather,
                      .begin = 405 * kMicro,
                      .duration = 5 * kMicro,
                      .stream = 20,
                      .correlation = 3},
                     {.group = "dp"});
        t.collective({.name = kGather, .begin = 410 * kMicro, .duration = 5, .stream = 20}, {});
      }).devices.at(0);
  ASSERT_THAT(device.queued, SizeIs(1));
  EXPECT_EQ(device.queued[0].first, CollectiveOp::reduce_scatter);
  EXPECT_EQ(device.queued[0].second, CollectiveOp::all_gather);
  EXPECT_EQ(device.queued[0].calls, 1);
  EXPECT_EQ(device.queued[0].queued, Nanos(80 * kMicro));  // 30 to 110
  EXPECT_EQ(device.queued[0].exposed, Nanos(50 * kMicro));
  EXPECT_EQ(device.launches_unknown, 1);
}

TEST(AnalyseTrace, OneProcessGroupOnTwoStreamsQueuesToo) {
  const auto two_streams = [](const std::string& second_group) {
    return [second_group](KinetoText& t) {
      t.host("cuda_runtime", "cudaLaunchKernelExC", 0, kMicro, 1);
      t.host("cuda_runtime", "cudaLaunchKernelExC", 5 * kMicro, kMicro, 2);
      t.collective({.name = kScatter,
                    .begin = 10 * kMicro,
                    .duration = 100 * kMicro,
                    .stream = 20,
                    .correlation = 1},
                   {.group = "dp"});
      t.collective({.name = kGather,
                    .begin = 110 * kMicro,
                    .duration = 5 * kMicro,
                    .stream = 24,
                    .correlation = 2},
                   {.group = second_group});
    };
  };
  EXPECT_THAT(analyse(two_streams("dp")).devices.at(0).queued, SizeIs(1));
  EXPECT_THAT(analyse(two_streams("ep")).devices.at(0).queued, IsEmpty());
}

TEST(AnalyseTrace, CountsReductionsInFlight) {
  const DeviceReport device =
      analyse([](KinetoText& t) {
        for (int i = 0; i < 3; ++i) {
          t.host("cuda_runtime", "cudaLaunchKernelExC", i * kMicro, 100, i + 1);
          t.collective({.name = kScatter,
                        .begin = (10 + 10 * i) * kMicro,
                        .duration = 10 * kMicro,
                        .stream = 24,
                        .correlation = i + 1},
                       {});
        }
      }).devices.at(0);
  EXPECT_EQ(device.reductions.most_running, 1);  // one after the other
  EXPECT_EQ(device.reductions.most_pending, 3);  // all launched by 2 us, none ended before 20
  EXPECT_EQ(device.reductions.most_queued, 3);   // none began before 10 us
  EXPECT_EQ(device.reductions.op, CollectiveOp::reduce_scatter);
}

TEST(AnalyseTrace, StepsOfTheDeviceGoBeforeThoseOfTheHost) {
  const TraceReport report = analyse([](KinetoText& t) {
    t.activity({.begin = 0, .duration = 100});
    t.step(1, 10, 50, true);
    t.step(1, 0, 1, false);
  });
  ASSERT_THAT(report.devices.at(0).steps, SizeIs(1));
  EXPECT_TRUE(report.devices[0].steps_of_device);
  EXPECT_EQ(report.devices[0].steps[0].time.span, Nanos(90));  // from 10 to the last activity's end
}

TEST(AnalyseTrace, SaysWhatIsMissing) {
  const TraceReport bare = analyse([](KinetoText& t) {
    t.activity({.name = kGather, .duration = 5});
    t.activity({.name = "Memcpy PtoP (Device -> Device)", .category = "gpu_memcpy"});
    t.host("cuda_runtime", "cudaGraphLaunch", 1, 1, 1);
    t.step(1, 0, 5, false);
  });
  EXPECT_THAT(bare.limits, Contains(HasSubstr("enable_cuda_sync_events=True")));
  EXPECT_THAT(bare.limits, Contains(HasSubstr("1 of 1 collectives have no launch")));
  EXPECT_THAT(bare.limits, Contains(HasSubstr("1 of 1 collectives name no process group")));
  EXPECT_THAT(bare.limits, Contains(HasSubstr("1 of 1 collectives state no size")));
  EXPECT_THAT(bare.limits, Contains(HasSubstr("1 copies between GPUs")));
  EXPECT_THAT(bare.limits, Contains(HasSubstr("1 launches of CUDA graphs")));
  EXPECT_THAT(bare.limits, Contains(HasSubstr("bounded by the host's annotations")));
  EXPECT_THAT(bare.limits, Contains(HasSubstr("Memory ranges are not recorded")));

  const TraceReport full = analyse([](KinetoText& t) {
    t.host("cuda_runtime", "cudaLaunchKernelExC", 0, 1, 1);
    t.collective({.name = kGather, .duration = 5, .correlation = 1}, {});
    t.host("cuda_sync", "Stream Wait Event", 1, 0);
    t.step(1, 0, 5, true);
  });
  for (const char* what : {"enable_cuda_sync_events", "no launch", "process group", "no size",
                           "between GPUs", "CUDA graphs", "annotations"})
    EXPECT_THAT(full.limits, Not(Contains(HasSubstr(what))));
}

TEST(AnalyseTrace, RefusesWhatHasNoGpu) {
  const auto trace = parse_kineto(
      kineto_text([](KinetoText& t) { t.host("cpu_op", "aten::mm", 0, 5); }), "t.json");
  ASSERT_TRUE(trace);
  EXPECT_THAT(analyse_trace(*trace).error().message(),
              HasSubstr("t.json: expected kernels of a GPU"));
}

TEST(AnalyseTrace, TimesThatOverflowAreOneLine) {
  constexpr std::int64_t kLong = std::int64_t{1} << 60;
  const auto trace = parse_kineto(kineto_text([](KinetoText& t) {
                                    for (int i = 0; i < 9; ++i)
                                      t.activity({.begin = 0, .duration = kLong});
                                  }),
                                  "t.json");
  ASSERT_TRUE(trace) << trace.error().message();
  EXPECT_EQ(analyse_trace(*trace).error().message(),
            "t.json: expected times, and bytes, that add up to less than 2^63");
}

}  // namespace
}  // namespace mfsdp::traces
