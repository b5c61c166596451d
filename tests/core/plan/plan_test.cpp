#include "core/plan/plan.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

TEST(Plan, AGroupUsesTheElementsOfItsParameters) {
  Group group;
  group.elements = 128;
  EXPECT_EQ(group.used_elements(), 0);
  PlacedParameter matrix;
  matrix.shape = {8, 12};
  PlacedParameter vector;
  vector.shape = {8};
  group.parameters = {matrix, vector};
  EXPECT_EQ(matrix.elements(), 96);       // 8 * 12
  EXPECT_EQ(group.used_elements(), 104);  // 96 + 8
  group.parameters[0].shape = {std::int64_t{1} << 62, 2};
  EXPECT_THROW((void)group.used_elements(), OverflowError);
}

TEST(Plan, PlansAreFoundByNameAndByRole) {
  Program program;
  program.plans = {{.name = "train", .segments = {}},
                   {.name = "eval", .segments = {}},
                   {.name = "scores", .segments = {}}};
  EXPECT_EQ(program.find_plan("eval"), &program.plans[1]);
  EXPECT_EQ(program.find_plan("logprob"), nullptr);
  EXPECT_EQ(program.find_plan(PlanRole::eval), &program.plans[1]);
  EXPECT_EQ(program.find_plan(PlanRole::logprob), nullptr);
  EXPECT_EQ(program.plans[2].role(), std::nullopt);
  program.plans[2].stated_role = PlanRole::logprob;
  EXPECT_EQ(program.find_plan(PlanRole::logprob), &program.plans[2]);
  // The stated role counts, not the name.
  program.plans[1].stated_role = PlanRole::train;
  EXPECT_EQ(program.find_plan(PlanRole::eval), nullptr);
}

}  // namespace
}  // namespace mfsdp
