#include "reports/trace/whole_step.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tests/support/predicted.hpp"

namespace mfsdp {
namespace {

using ::testing::ElementsAre;

using Key = std::tuple<std::uint32_t, std::string, std::int64_t>;  ///< op, segment, instance

std::map<Key, std::pair<Nanos, Nanos>> times_of(const std::vector<TimedOp>& whole) {
  std::map<Key, std::pair<Nanos, Nanos>> times;
  for (const TimedOp& op : whole)
    times[{op.op->op.value, op.op->segment, op.instance}] = {op.start, op.end};
  return times;
}

std::size_t overlaps(const std::vector<TimedOp>& whole) {
  std::map<std::string, Nanos> ends;
  std::size_t count = 0;
  for (const TimedOp& op : whole) {
    const auto [end, first] = ends.emplace(op.op->stream, op.end);
    if (first) continue;
    if (op.start < end->second) ++count;
    end->second = op.end;
  }
  return count;
}

/// The run as if its step had been too long to keep whole. Its second instance of "middle" still
/// has what the first did otherwise; from the third on they are alike.
PredictedRun without_later_instances(PredictedRun run) {
  std::int64_t most = 0;
  std::map<std::int64_t, Nanos> begins;  // of instances of "middle" on compute
  for (const OpTime& op : run.timeline) {
    if (op.segment != "middle" || op.stream != "compute") continue;
    most = std::max(most, op.instance);
    const auto [begin, is_new] = begins.emplace(op.instance, op.start);
    if (!is_new) begin->second = std::min(begin->second, op.start);
  }
  const Nanos period((begins[most] - begins[2]).value / (most - 2));
  run.omitted = {{.segment = "middle",
                  .first = 3,
                  .count = most - 2,
                  .begin = begins[2] + period,
                  .period = period}};
  std::erase_if(run.timeline, [](const OpTime& op) { return op.instance >= 3; });
  return run;
}

TEST(WholeStep, WhatWasNotKeptStandsWhereItRan) {
  for (const Strategy strategy : {Strategy::optim_grads_params, Strategy::optim}) {
    const auto predicted = test::predicted([&](PlanConfig& config) {
      config.microbatches = 9;
      config.strategy = strategy;
    });
    const PredictedRun shorter = without_later_instances(predicted.run());
    ASSERT_LT(shorter.timeline.size(), predicted.run().timeline.size());
    const std::vector<TimedOp> whole = whole_step(shorter);
    EXPECT_EQ(times_of(whole), times_of(whole_step(predicted.run())));
    EXPECT_EQ(overlaps(whole), 0U);
  }
}

TEST(WholeStep, NothingOverlapsWhereKernelsVary) {
  const auto predicted = test::predicted([](PlanConfig& config) { config.microbatches = 9; },
                                         {.jitter = {1, 10}, .seed = 3});
  const PredictedRun shorter = without_later_instances(predicted.run());
  const std::vector<TimedOp> whole = whole_step(shorter);
  EXPECT_EQ(times_of(whole).size(), predicted.run().timeline.size());
  EXPECT_EQ(overlaps(whole), 0U);
}

OpTime op(std::string segment, std::int64_t instance, std::int64_t start, std::int64_t end) {
  return {.op = OpId(1),
          .name = "a",
          .stream = "compute",
          .kind = "gemm",
          .segment = std::move(segment),
          .instance = instance,
          .start = Nanos(start),
          .end = Nanos(end)};
}

using Row = std::tuple<std::int64_t, std::int64_t, std::int64_t, bool>;

std::vector<Row> rows(const RunFigures& run) {
  std::vector<Row> rows;
  for (const TimedOp& op : whole_step(run))
    rows.emplace_back(op.instance, op.start.value, op.end.value, op.omitted);
  return rows;
}

TEST(WholeStep, IsTheTimelineWhereNothingIsLeftOut) {
  RunFigures run;
  run.timeline = {op("middle", 0, 0, 10), op("middle", 1, 12, 20), op("last", 0, 42, 50)};
  EXPECT_THAT(rows(run),
              ElementsAre(Row(0, 0, 10, false), Row(1, 12, 20, false), Row(0, 42, 50, false)));
}

TEST(WholeStep, OthersFollowTheLastThatWasKept) {
  RunFigures run;
  run.timeline = {op("middle", 0, 0, 10), op("middle", 1, 12, 20), op("last", 0, 42, 50)};
  run.omitted = {
      {.segment = "middle", .first = 2, .count = 2, .begin = Nanos(22), .period = Nanos(10)}};
  EXPECT_THAT(rows(run),
              ElementsAre(Row(0, 0, 10, false), Row(1, 12, 20, false), Row(2, 22, 30, true),
                          Row(3, 32, 40, true), Row(0, 42, 50, false)));
}

TEST(WholeStep, TheyGiveWayToWhatWasKept) {
  RunFigures run;
  run.timeline = {op("middle", 0, 0, 10), op("middle", 1, 10, 21), op("last", 0, 30, 50)};
  run.omitted = {
      {.segment = "middle", .first = 2, .count = 1, .begin = Nanos(20), .period = Nanos(10)}};
  EXPECT_THAT(rows(run), ElementsAre(Row(0, 0, 10, false), Row(1, 10, 21, false),
                                     Row(2, 21, 30, true), Row(0, 30, 50, false)));
}

}  // namespace
}  // namespace mfsdp
