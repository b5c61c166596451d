// Compares the report on a trace that PyTorch's profiler wrote (data/README.md) with sums computed
// independently from its JSON.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <istream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/formats/trace_source.hpp"
#include "verify/traces/trace_report.hpp"

namespace mfsdp::traces {
namespace {

using Json = nlohmann::json;

const std::string kFile = MFSDP_SOURCE_DIR "/tests/verify/traces/data/fsdp2_2xh200_rank0.json.gz";

/// Sums over the file's events.
struct Activities {
  std::vector<std::pair<std::int64_t, std::int64_t>> compute;  ///< ns, half-open
  std::vector<std::pair<std::int64_t, std::int64_t>> calls;
  std::map<std::string, int> calls_by_name;
};

std::int64_t nanoseconds(const Json& microseconds) {
  return std::llround(microseconds.get<long double>() * 1000);
}

Activities activities() {
  const auto source = TraceSource::open(kFile);
  std::istream stream(source.value().get());
  const Json trace = Json::parse(stream);
  Activities all;
  for (const Json& event : trace.at("traceEvents")) {
    if (event.value("cat", "") != "kernel") continue;
    const std::int64_t begin = nanoseconds(event.at("ts"));
    const std::pair span{begin, begin + nanoseconds(event.at("dur"))};
    const bool call = event.at("name").get<std::string>().starts_with("nccl");
    (call ? all.calls : all.compute).push_back(span);
    if (call) ++all.calls_by_name[event.at("args").at("Collective name")];
  }
  return all;
}

/// The length of the union of spans, computed by a sweep over begins and ends.
std::int64_t covered(const std::vector<std::pair<std::int64_t, std::int64_t>>& spans) {
  std::map<std::int64_t, int> changes;
  for (const auto& [begin, end] : spans) {
    ++changes[begin];
    --changes[end];
  }
  std::int64_t time = 0;
  std::int64_t since = 0;
  int running = 0;
  for (const auto& [at, change] : changes) {
    if (running > 0) time += at - since;
    since = at;
    running += change;
  }
  return time;
}

DeviceReport report() {
  const auto trace = read_kineto(kFile);
  EXPECT_TRUE(trace) << trace.error().message();
  return analyse_trace(trace.value()).value().devices.at(0);
}

TEST(RealTrace, ComputeAndExposedCommunicationAreThoseOfASweep) {
  const Activities all = activities();
  std::vector<std::pair<std::int64_t, std::int64_t>> both = all.compute;
  both.insert(both.end(), all.calls.begin(), all.calls.end());
  const DeviceReport device = report();
  EXPECT_EQ(device.time.compute, Nanos(covered(all.compute)));
  EXPECT_EQ(device.time.exposed, Nanos(covered(both) - covered(all.compute)));
}

TEST(RealTrace, CollectivesAreThoseThatTheProfilerNamed) {
  const Activities all = activities();
  std::map<CollectiveOp, std::int64_t> calls;
  for (const CollectiveSummary& summary : report().collectives) calls[summary.op] += summary.calls;
  EXPECT_EQ(calls[CollectiveOp::all_gather], all.calls_by_name.at("_allgather_base"));
  EXPECT_EQ(calls[CollectiveOp::reduce_scatter], all.calls_by_name.at("_reduce_scatter_base"));
}

/// Backward runs on a separate thread, which the device's annotation of a step does not cover.
TEST(RealTrace, StepsHoldTheirBackward) {
  const DeviceReport device = report();
  ASSERT_EQ(device.steps.size(), 2U);
  ASSERT_TRUE(device.steps_of_device);
  const double first = static_cast<double>(device.steps[0].time.compute.value);
  const double second = static_cast<double>(device.steps[1].time.compute.value);
  EXPECT_NEAR(second / first, 1, 0.1);  // the same work; clocks vary by a few per cent
  EXPECT_EQ(device.steps[1].begin + device.steps[1].time.span, device.begin + device.time.span);
}

}  // namespace
}  // namespace mfsdp::traces
