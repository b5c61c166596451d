#include "gpu_backend/tool/measured_step.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "sim/engine/op_names.hpp"
#include "tests/support/tiny_program.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kOp = 10;      ///< ns of an op of compute
constexpr std::int64_t kGather = 25;  ///< ns of a collective

constexpr std::int64_t kOps = 4;  ///< of compute in a step

/// Steps one after the other: ops of compute in line, and behind them one collective, beside which
/// the next step begins.
class MeasureStep : public testing::Test {
 protected:
  Program program_ = test::tiny_program();
  const Plan& plan_ = program_.plans.front();
  BoundOp compute_;
  BoundOp gather_;

  void SetUp() override {
    for (const Segment& segment : plan_.segments)
      for (const Op& op : segment.ops) {
        if (op.kind() == OpKind::collective) gather_.op = &op;
        if (op.kind() == OpKind::kernel) compute_.op = &op;
      }
    ASSERT_NE(compute_.op, nullptr);
    ASSERT_NE(gather_.op, nullptr);
  }

  [[nodiscard]] std::vector<OpTiming> steps(std::int64_t count) const {
    std::vector<OpTiming> timings;
    const auto add = [&](const BoundOp& op, std::int64_t step, std::int64_t begin,
                         std::int64_t length) {
      timings.push_back({.op = &op,
                         .step = step,
                         .issued = Nanos(begin),
                         .begin = Nanos(begin),
                         .end = Nanos(begin + length)});
    };
    std::int64_t now = 100;
    for (std::int64_t step = 7; step < 7 + count; ++step) {
      for (std::int64_t op = 0; op < kOps; ++op, now += kOp) add(compute_, step, now, kOp);
      add(gather_, step, now, kGather);
    }
    return timings;
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
  // What ran beside the gather of the step before began before this one did.
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

TEST_F(MeasureStep, OfNothingIsNothing) { EXPECT_EQ(measured(0).time.step, Nanos(0)); }

}  // namespace
}  // namespace mfsdp
