// The ops that fail and those that are delayed. Needs no GPU: nothing is queued.
#include "gpu_backend/cuda/fault_injection.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

namespace mfsdp::cuda {
namespace {

constexpr Nanos kDuration{1'000};

/// A plan of four ops, made ready in one list.
class FaultInjectionTest : public testing::Test {
 protected:
  FaultInjectionTest() {
    for (std::size_t i = 0; i < ops_.size(); ++i) {
      ops_[i].id = OpId(10 + i);
      bound_[i].op = &ops_[i];
    }
    list_.bound = bound_;
    list_.plan_ops = 4;
  }
  PreparedPlace place(std::size_t op) const { return {.list = &list_, .position = op}; }

  std::array<Op, 4> ops_;
  std::array<BoundOp, 4> bound_;
  PreparedList list_;
};

TEST_F(FaultInjectionTest, OneOpOfOneRankInOneStepIsFaulty) {
  const InjectedFault fault{
      .kind = InjectedFault::Kind::fail, .rank = 1, .op = OpId(12), .step = 3};
  for (const std::int64_t rank : {0, 1}) {
    const FaultInjection faults(rank, fault, {});
    for (std::size_t op = 0; op < ops_.size(); ++op)
      for (const std::int64_t step : {2, 3})
        EXPECT_EQ(faults.is_faulty(bound_[op], step), rank == 1 && op == 2 && step == 3);
  }
  EXPECT_FALSE(FaultInjection(0, std::nullopt, {}).is_faulty(bound_[0], 0));
}

TEST_F(FaultInjectionTest, AFailureSaysThatItWasAskedFor) {
  Communicators none;
  for (const auto kind : {InjectedFault::Kind::fail, InjectedFault::Kind::miscount}) {
    FaultInjection faults(0, InjectedFault{.kind = kind, .rank = 0, .op = OpId(10), .step = 0}, {});
    const auto outcome = faults.run_faulty(bound_[0], none, nullptr);  // no collective to miscount
    ASSERT_FALSE(outcome);
    EXPECT_EQ(outcome.error().message(), "fails, as requested");
  }
}

TEST_F(FaultInjectionTest, DelaysComeBeforeTheOpThatWasNamed) {
  FaultInjection faults(0, std::nullopt, {.seed = {}, .op = OpId(11), .duration = kDuration});
  for (std::size_t op = 0; op < ops_.size(); ++op)
    EXPECT_EQ(faults.draw_delay(bound_[op], 0, place(op)).has_value(), op == 1);
  EXPECT_EQ(faults.draw_delay(bound_[1], 5, place(1)), kDuration);
}

TEST_F(FaultInjectionTest, DelaysInTurnCountOpsOfThePlan) {
  FaultInjection faults(0, std::nullopt,
                        {.seed = {}, .op = {}, .each_in_turn = true, .duration = kDuration});
  for (std::int64_t step = 0; step < 9; ++step)
    for (std::size_t op = 0; op < ops_.size(); ++op)
      EXPECT_EQ(faults.draw_delay(bound_[op], step, place(op)).has_value(),
                static_cast<std::int64_t>(op) == step % 4)
          << "step " << step << ", op " << op;
}

TEST_F(FaultInjectionTest, RandomDelaysComeBeforeAQuarterAndDifferByRank) {
  const auto draws = [&](std::int64_t rank) {
    FaultInjection faults(rank, std::nullopt, {.seed = 7, .op = {}, .duration = kDuration});
    std::vector<std::optional<Nanos>> drawn;
    for (int i = 0; i < 4'000; ++i) drawn.push_back(faults.draw_delay(bound_[0], 0, place(0)));
    return drawn;
  };
  const auto first = draws(0);
  const auto delayed = std::ranges::count_if(first, [](const auto& d) { return d.has_value(); });
  EXPECT_NEAR(static_cast<double>(delayed), 1'000, 110);  // four standard deviations of 27.4
  for (const auto& delay : first) EXPECT_LT(delay.value_or(Nanos(0)), kDuration);
  EXPECT_EQ(first, draws(0));
  EXPECT_NE(first, draws(1));
}

TEST_F(FaultInjectionTest, NothingIsDelayedUnlessAskedFor) {
  FaultInjection faults(0, std::nullopt, {});
  for (std::size_t op = 0; op < ops_.size(); ++op)
    EXPECT_FALSE(faults.draw_delay(bound_[op], 0, place(op)));
}

}  // namespace
}  // namespace mfsdp::cuda
