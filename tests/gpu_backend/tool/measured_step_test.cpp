#include "gpu_backend/tool/measured_step.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "gpu_backend/tool/rank_machine.hpp"
#include "reports/record/axis_times.hpp"
#include "sim/simulator/op_names.hpp"
#include "tests/support/tiny_program.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kOp = 10;      ///< ns of an op of compute
constexpr std::int64_t kGather = 25;  ///< ns of a collective

constexpr std::int64_t kOps = 4;  ///< of compute in a step

/// Consecutive steps: ops of compute in sequence, then one collective, during which the next step
/// begins.
class MeasureStep : public testing::Test {
 protected:
  Program program_ = test::tiny_program();
  const Plan& plan_ = program_.plans.front();
  OpId compute_;
  OpId gather_;

  void SetUp() override {
    for (const Segment& segment : plan_.segments)
      for (const Op& op : segment.ops) {
        if (op.kind() == OpKind::collective) gather_ = op.id;
        if (op.kind() == OpKind::kernel) compute_ = op.id;
      }
    ASSERT_NE(compute_, gather_);
  }

  [[nodiscard]] std::vector<OpLaunch> steps(std::int64_t count, std::int64_t rank = 0,
                                            std::int64_t length = kOp) const {
    std::vector<OpLaunch> launches;
    const auto add = [&](OpId op, std::int64_t step, std::int64_t begin, std::int64_t takes) {
      launches.push_back({.op = op,
                          .rank = rank,
                          .step = step,
                          .stream = std::nullopt,
                          .issued = Nanos(begin),
                          .begin = Nanos(begin),
                          .end = Nanos(begin + takes)});
    };
    std::int64_t now = 100;
    for (std::int64_t step = 7; step < 7 + count; ++step) {
      for (std::int64_t op = 0; op < kOps; ++op, now += length) add(compute_, step, now, length);
      add(gather_, step, now, kGather);
    }
    return launches;
  }

  [[nodiscard]] MeasuredStep measured(std::int64_t count) const {
    return measure_step(program_, plan_, steps(count));
  }
};

TEST_F(MeasureStep, IsThatBeforeTheLastAsTheNextOneRunsBesideItsEnd) {
  const MeasuredStep step = measured(3);
  EXPECT_EQ(step.time.step, Nanos(kOps * kOp));
  EXPECT_EQ(step.time.compute, Nanos(kOps * kOp));
  EXPECT_EQ(step.time.communication, Nanos(kGather));
  EXPECT_EQ(step.time.exposed_communication, Nanos(0));
  EXPECT_EQ(step.time.idle, Nanos(0));
  // An op that ran beside the previous step's gather began before this step did.
  ASSERT_EQ(step.timeline.size(), 5);
  EXPECT_EQ(step.timeline.front().start, Nanos(-kGather));
  EXPECT_EQ(step.timeline.back().end, step.time.step);
}

TEST_F(MeasureStep, OfTwoIsTheLastWithoutAStepBesideItsEnd) {
  const MeasuredStep step = measured(2);
  EXPECT_EQ(step.time.step, Nanos(kOps * kOp));
  EXPECT_EQ(step.time.exposed_communication, Nanos(kGather));
}

TEST_F(MeasureStep, OfOneIsAllOfIt) {
  const MeasuredStep step = measured(1);
  EXPECT_EQ(step.time.step, Nanos(kOps * kOp + kGather));
  EXPECT_EQ(step.time.compute, Nanos(kOps * kOp));
  EXPECT_EQ(step.time.exposed_communication, Nanos(kGather));
  EXPECT_EQ(step.timeline.front().start, Nanos(0));
}

TEST_F(MeasureStep, OfTheRankWhoseKernelsTakeLongest) {
  program_.config.mesh.resize(Axis::dp_shard, 4);
  const std::vector<std::vector<OpLaunch>> by_rank{
      steps(3, 0), steps(3, 1, kOp + 2), {}, steps(3, 3, kOp + 1)};
  const MeasuredStep step = slowest_step(slowest_steps({&program_, 1}, by_rank));
  EXPECT_EQ(step.rank, 1);
  EXPECT_EQ(step.time.compute, Nanos(kOps * (kOp + 2)));
}

/// Ranks 0 and 1 are of the second class here, ranks 2 and 3 of the first.
TEST_F(MeasureStep, OfTheSlowestRankOfEachClass) {
  program_.config.mesh.dense = {{.axis = Axis::pp, .size = 2}, {.axis = Axis::dp_shard, .size = 2}};
  std::vector<Program> programs(2, program_);
  programs[0].classes = {{.role = "last", .ranks = 2, .at = {{.axis = Axis::pp, .index = 1}}}};
  programs[1].classes = {{.role = "first", .ranks = 2, .at = {{.axis = Axis::pp, .index = 0}}}};
  Bytes heights;
  for (const Pool& pool : program_.pools) heights += pool.height;
  std::vector<RanRank> ranks(4);
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    const auto rank = static_cast<std::int64_t>(r);
    ranks[r].launches = steps(3, rank, kOp + (rank == 1 || rank == 2 ? 3 : 0));
    for (const Pool& pool : program_.pools) ranks[r].memory.pools.push_back(pool.height);
    ranks[r].memory.categories[0] = Bytes(10 + rank);
    ranks[r].runtime = Bytes(100 - rank);
  }
  const RanRun ran = ran_run(programs, ranks);
  ASSERT_EQ(ran.classes.size(), 2U);
  EXPECT_EQ(ran.classes[0].step.rank, 2);
  EXPECT_EQ(ran.classes[1].step.rank, 1);
  EXPECT_EQ(ran.classes[0].categories[0], Bytes(13));
  EXPECT_EQ(ran.classes[1].categories[0], Bytes(11));
  EXPECT_EQ(ran.classes[0].runtime, Bytes(98));
  EXPECT_EQ(ran.classes[0].allocated + ran.classes[0].host, heights);
  EXPECT_EQ(ran.step.rank, 1);
}

/// Gathers over dp_shard take [40, 65), a gather over cp takes [35, 55) and one more [60, 70); there
/// is compute before 40. The one that ends last has the time of both.
TEST_F(MeasureStep, ExposedCommunicationIsOfTheAxesThatEndLast) {
  program_.config.mesh.resize(Axis::cp, 2);
  program_.communicators.push_back(
      {.id = CommunicatorId(1), .axes = {Axis::cp}, .purpose = "all_gather", .size = 2});
  std::vector<Op>& ops = program_.plans.front().segments.front().ops;
  Op other = *std::ranges::find(ops, gather_, &Op::id);
  other.id = OpId(ops.size());
  std::get<Collective>(other.body).communicator = CommunicatorId(1);
  ops.push_back(other);
  std::vector<OpLaunch> launches = steps(1);
  for (const auto& [begin, end] : {std::pair(135, 155), {160, 170}}) {
    launches.push_back(launches.back());
    launches.back().op = other.id;
    launches.back().begin = Nanos(begin);
    launches.back().end = Nanos(end);
  }
  const MeasuredStep step = measure_step(program_, program_.plans.front(), launches);
  EXPECT_EQ(step.time.exposed_communication, Nanos(30));
  EXPECT_THAT(axis_times(step.exposed),
              testing::ElementsAre(AxesTime("dp_shard", Nanos(20)), AxesTime("cp", Nanos(10))));
  // Communicators of one axis need no parts.
  EXPECT_THAT(measured(1).exposed, testing::SizeIs(2));
  program_.communicators.pop_back();
  ops.pop_back();
  EXPECT_THAT(measured(1).exposed, testing::IsEmpty());
}

TEST_F(MeasureStep, OfNothingIsNothing) { EXPECT_EQ(measured(0).time.step, Nanos(0)); }

}  // namespace
}  // namespace mfsdp
