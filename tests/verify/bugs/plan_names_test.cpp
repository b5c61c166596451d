#include "verify/bugs/plan_names.hpp"

#include <gtest/gtest.h>

#include <set>

#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp::bugs {
namespace {

TEST(PlanNames, EveryOpHasOneOfItsOwn) {
  const Program program = build_program(test::small_config(), {}).value();
  const PlanNames names(program);
  std::set<std::string> seen;
  for (const Plan& plan : program.plans)
    for (const Segment& segment : plan.segments)
      for (const Op& op : segment.ops) {
        const auto id = static_cast<std::int64_t>(op.id.value);
        const auto name = names.name_of("op", id);
        ASSERT_TRUE(name);
        EXPECT_TRUE(seen.insert(*name).second) << *name;
        EXPECT_EQ(names.id_of("op", *name), id);
      }
}

TEST(PlanNames, TellSegmentKindAndStream) {
  const Program program = build_program(test::small_config(), {}).value();
  const PlanNames names(program);
  // Gathered in forward and again in backward.
  const auto first = names.id_of("op", "only: collective layers.0.all_gather (all_gather)");
  const auto second = names.id_of("op", "only: collective layers.0.all_gather (all_gather) #2");
  ASSERT_TRUE(first && second);
  EXPECT_LT(*first, *second);
  EXPECT_FALSE(names.id_of("op", "only: collective layers.0.all_gather (all_gather) #3"));
  EXPECT_EQ(names.id_of("group", "layers.1"), 2);  // after the embedding's and layers.0's
  EXPECT_EQ(names.id_of("stream", "h2d"), 4);
  EXPECT_EQ(names.id_of("communicator", "reduce_scatter"), 1);
  EXPECT_FALSE(names.id_of("kernel", "x"));
  EXPECT_FALSE(names.name_of("op", 1 << 30));
}

}  // namespace
}  // namespace mfsdp::bugs
