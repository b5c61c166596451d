#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/formats/kineto.hpp"
#include "tests/support/kineto_text.hpp"

namespace mfsdp::traces {
namespace {

using test::kineto_text;
using test::KinetoText;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

Trace parse(const std::string& text) {
  auto trace = parse_kineto(text, "t.json");
  EXPECT_TRUE(trace) << trace.error().message();
  return trace ? *trace : Trace{};
}

std::string error_of(const std::string& text, const KinetoSettings& settings = {}) {
  const auto trace = parse_kineto(text, "t.json", settings);
  return trace ? "" : trace.error().message();
}

/// A trace of one event, written as it is.
std::string with(std::string_view event) {
  return "{\"traceEvents\": [" + std::string(event) + "]}";
}

TEST(ParseKineto, ReadsWhatTheGpuDid) {
  const Trace trace = parse(kineto_text([](KinetoText& t) {
    t.host("cpu_op", "aten::mm", 0, 5'000);
    t.host("cuda_runtime", "cudaLaunchKernel", 1'000, 500, 5);
    t.activity({.name = "gemm", .begin = 10'001, .duration = 2'002, .correlation = 5});
    t.activity({.name = "Memcpy DtoD (Device -> Device)",
                .begin = 12'500,
                .duration = 7,
                .stream = 9,
                .category = "gpu_memcpy"});
    t.host("cuda_runtime", "cudaEventRecord", 20'000, 500);
    t.host("cuda_runtime", "cudaStreamWaitEvent", 21'000, 500);
    t.step(3, 9'000, 9'000, true);
  }));
  EXPECT_EQ(trace.rank, 0);
  EXPECT_EQ(trace.world_size, 8);
  EXPECT_EQ(trace.events, 7);
  ASSERT_THAT(trace.work, SizeIs(2));
  EXPECT_EQ(trace.work[0].begin, Nanos(10'001));
  EXPECT_EQ(trace.work[0].end, Nanos(12'003));
  EXPECT_EQ(trace.work[0].stream, 7);
  EXPECT_EQ(trace.names[trace.work[0].name], "gemm");
  EXPECT_EQ(trace.work[1].kind, WorkKind::copy);
  ASSERT_THAT(trace.steps, SizeIs(1));
  EXPECT_EQ(trace.steps[0].step, 3);
  EXPECT_EQ(trace.steps[0].device, 0);
  EXPECT_EQ(trace.event_records, 1);
  EXPECT_EQ(trace.stream_waits, 1);
}

TEST(ParseKineto, ReadsCollectivesWithTheirLaunch) {
  const Trace trace = parse(kineto_text([](KinetoText& t) {
    t.collective({.name = "ncclDevKernel_AllGather_RING_LL(...)",
                  .begin = 50'000,
                  .duration = 10'000,
                  .stream = 20,
                  .correlation = 9},
                 {.group = "3"});
    // Host calls may come after the activities that they launched.
    t.host("cuda_runtime", "cudaLaunchKernelExC", 40'000, 5'000, 9);
    t.collective({.name = "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL", .correlation = 77}, {});
  }));
  ASSERT_THAT(trace.collectives, SizeIs(2));
  const CollectiveCall& gather = trace.collectives[0];
  EXPECT_EQ(gather.op, CollectiveOp::all_gather);
  EXPECT_EQ(gather.launched, Nanos(40'000));
  EXPECT_EQ(trace.names[gather.group], "3");
  EXPECT_EQ(trace.names[gather.dtype], "BFloat16");
  EXPECT_EQ(gather.in_elements, 1024);
  EXPECT_EQ(gather.out_elements, 8192);
  EXPECT_EQ(gather.group_size, 8);
  EXPECT_EQ(trace.collectives[1].op, CollectiveOp::reduce_scatter);
  EXPECT_EQ(trace.collectives[1].launched, std::nullopt);
}

TEST(ParseKineto, ReadsStreamWaits) {
  const Trace trace = parse(with(
      R"({"ph":"X","cat":"cuda_sync","name":"Stream Wait Event","pid":0,"tid":7,"ts":5,"dur":0,
          "args":{"wait_on_stream":20,"stream":7,"device":0}})"));
  ASSERT_THAT(trace.syncs, SizeIs(1));
  EXPECT_EQ(trace.syncs[0].waits_on_stream, 20);
  EXPECT_EQ(trace.syncs[0].stream, 7);
}

TEST(ParseKineto, TakesBothChromeFormsAndAnyOrderOfKeys) {
  const std::string event = R"({"dur":2,"args":{"stream":"3"},"ts":1.5,"tid":9,"pid":1,
                                "name":"k","ph":"X","cat":"kernel"})";
  for (const std::string& text : {"[" + event + "]", with(event)}) {
    const Trace trace = parse(text);
    ASSERT_THAT(trace.work, SizeIs(1));
    EXPECT_EQ(trace.work[0].begin, Nanos(1'500));
    EXPECT_EQ(trace.work[0].end, Nanos(3'500));
    EXPECT_EQ(trace.work[0].device, 1);  // no "device" in args: the process
    EXPECT_EQ(trace.work[0].stream, 3);
  }
}

TEST(ParseKineto, LeavesOtherEventsAlone) {
  const Trace trace = parse(with(
      R"({"ph":"M","name":"process_name","pid":"Spans","args":{"name":7}},
         {"ph":"i","name":"Iteration Start","ts":"soon","pid":"Traces","tid":"Trace 0","s":"g"},
         {"ph":"X","cat":"cpu_op","name":"aten::mm","args":[1,{"deep":[[]]}]},
         {"ph":"s","id":1,"cat":"ac2g"}, {})"));
  EXPECT_EQ(trace.events, 5);
  EXPECT_TRUE(trace.work.empty());
}

TEST(ParseKineto, RefusesRanksThatAreNone) {
  const auto error_with = [](const std::string& ranks) {
    return error_of(R"({"distributedInfo":{)" + ranks + R"(},"traceEvents":[]})");
  };
  EXPECT_THAT(error_with(R"("rank":-1,"world_size":2)"),
              HasSubstr("distributedInfo: rank: expected a whole number from 0 to 1073741824"));
  EXPECT_THAT(error_with(R"("rank":"0","world_size":2)"), HasSubstr("distributedInfo: rank: "));
  EXPECT_THAT(error_with(R"("rank":0,"world_size":0)"), HasSubstr("world_size: expected a whole"));
  EXPECT_EQ(error_with(R"("rank":2,"world_size":2)"),
            "t.json: distributedInfo: rank: expected less than the world_size of 2, got 2");
}

TEST(ParseKineto, NamesTheEventThatIsWrong) {
  const std::string head = R"({},{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7)";
  EXPECT_EQ(error_of(with(head + "}")), "t.json: event 1 (\"k\"): lacks \"ts\"");
  EXPECT_EQ(error_of(with(head + R"(,"ts":1})")), "t.json: event 1 (\"k\"): lacks \"dur\"");
  EXPECT_EQ(error_of(with(head + R"(,"ts":1,"dur":-0.5})")),
            "t.json: event 1 (\"k\"): dur: expected at least 0, got -500 ns");
  EXPECT_EQ(error_of(with(head + R"(,"ts":"1","dur":1})")),
            "t.json: event 1 (\"k\"): ts: expected microseconds, below 2^63 ns");
  EXPECT_EQ(error_of(with(head + R"(,"ts":[1],"dur":1})")),
            "t.json: event 1 (\"k\"): ts: expected microseconds, below 2^63 ns");
  EXPECT_EQ(error_of(with(head + R"(,"ts":1e40,"dur":1})")),
            "t.json: event 1 (\"k\"): ts: expected microseconds, below 2^63 ns");
  EXPECT_EQ(error_of(with(head + R"(,"ts":1,"ts":1,"dur":1})")),
            "t.json: event 1 (\"k\"): \"ts\" appears twice");
  EXPECT_EQ(error_of(with(head + R"(,"ts":1,"dur":1,"args":{"stream":1,"stream":2}})")),
            "t.json: event 1 (\"k\"): \"stream\" appears twice");
  EXPECT_EQ(error_of(with(head + R"(,"ts":1,"dur":1,"args":{"stream":1.5}})")),
            "t.json: event 1 (\"k\"): stream: expected a whole number");
  EXPECT_EQ(error_of(with(head + R"(,"ts":1,"dur":1,"args":{"device":4294967296}})")),
            "t.json: event 1 (\"k\"): device: expected a number below 2^31, got 4294967296");
  EXPECT_EQ(error_of(with(R"({"ph":"X","cat":"kernel","name":"k","ts":1,"dur":1})")),
            "t.json: event 0 (\"k\"): names no device");
  EXPECT_EQ(error_of(with("{},7")), "t.json: event 1: expected an object");
  EXPECT_EQ(error_of(with("[]")), "t.json: event 0: expected an object, got a list");
}

TEST(ParseKineto, NamesTheByteWhereJsonIsWrong) {
  EXPECT_THAT(error_of("{\"traceEvents\": [}"), StartsWith("t.json: byte 18: "));
  EXPECT_THAT(error_of("{\"traceEvents\": [{}"), StartsWith("t.json: byte 20: "));
  EXPECT_THAT(error_of(""), StartsWith("t.json: byte 1: "));
  EXPECT_THAT(error_of("{\"traceEvents\": [1e999]}"),
              EndsWith(": expected a number up to 1.8e308, got 1e999"));
  EXPECT_THAT(error_of("nonsense"), StartsWith("t.json: byte "));
  EXPECT_THAT(error_of("{\"traceEvents\": [inf]}"), StartsWith("t.json: byte "));
  EXPECT_THAT(error_of("{\"x\": " + std::string(1000, '[')),
              EndsWith("byte 70: nested deeper than 64 levels"));
  EXPECT_THAT(error_of("7"), HasSubstr("expected a trace"));
  EXPECT_THAT(error_of("{}"), EndsWith("expected a trace: there are no traceEvents"));
  EXPECT_THAT(error_of("{\"traceEvents\": {}}"), HasSubstr("expected a list of events"));
  EXPECT_THAT(error_of("{\"traceEvents\": 3}"), HasSubstr("expected a list of events"));
  EXPECT_THAT(error_of("{\"traceEvents\": [], \"traceEvents\": []}"), HasSubstr("appears twice"));
}

TEST(ParseKineto, EveryTruncationIsOneLine) {
  const std::string text = kineto_text([](KinetoText& t) {
    t.collective({.name = "ncclDevKernel_AllGather_RING_LL"}, {});
    t.step(1, 0, 10, false);
  });
  for (std::size_t size = 0; size < text.size(); ++size) {
    const std::string error = error_of(text.substr(0, size));
    EXPECT_THAT(error, StartsWith("t.json: "));
    EXPECT_EQ(error.find('\n'), std::string::npos) << error;
  }
}

TEST(ParseKineto, KeepsNoMoreThanItMay) {
  const std::string text = kineto_text([](KinetoText& t) {
    for (int i = 0; i < 40'000; ++i) t.activity({.name = "k"});
  });
  // 40,000 activities of 32 bytes are 1.22 MiB.
  EXPECT_EQ(error_of(text, {.most_kept_bytes = 2 << 20}), "");
  EXPECT_THAT(error_of(text, {.most_kept_bytes = 1 << 20}),
              HasSubstr("(\"k\"): there is more to keep than 1 MiB; trace fewer steps"));
}

}  // namespace
}  // namespace mfsdp::traces
