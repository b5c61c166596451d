// The choice of the ops that are timed. Needs no GPU: no event is made.
#include "gpu_backend/cuda/op_timer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiny_program.hpp"

namespace mfsdp::cuda {
namespace {

TEST(OpTimer, TimesOnePlanFromAStepOn) {
  Plan train;
  train.name = "train";
  Plan eval;
  eval.name = "eval";
  const OpTimer timer({.plan = PlanRole::train, .from = 3, .count = 2});
  EXPECT_TRUE(timer.times_plan(train));
  EXPECT_FALSE(timer.times_plan(eval));
  EXPECT_FALSE(timer.times_step(2));
  EXPECT_TRUE(timer.times_step(3));
  EXPECT_FALSE(
      OpTimer({.plan = PlanRole::train, .from = std::nullopt, .count = 2}).times_plan(train));
}

TEST(OpTimer, APlanOfVeryManyOpsIsNotTimed) {
  const Program program = test::tiny_program();
  BoundPlan bound = PlanBinder(program, PoolBases(program.pools.size(), nullptr), 0)
                        .bind(program.plans.front())
                        .value();
  bound.lists.front().runs = 75'001;  // two ops take time, in each of two steps
  OpTimer timer({.plan = PlanRole::train, .from = 0, .count = 2});
  std::vector<std::string> notes;
  ASSERT_TRUE(timer.make_room(bound, notes));
  EXPECT_THAT(notes,
              testing::ElementsAre("ops are not timed: 300004 launches are more than 300000"));
  EXPECT_FALSE(timer.times_step(0));
}

}  // namespace
}  // namespace mfsdp::cuda
