#include "verify/proof/registered.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using test::PlanBuilder;
using test::rules_of;
using testing::ElementsAre;
using testing::IsEmpty;

/// A buffer in a pool of the device that is not registered.
BufferId in_ordinary_pool(PlanBuilder& plan, const std::string& name) {
  Pool pool = plan.program.pools[0];
  pool.id = PoolId(static_cast<std::uint32_t>(plan.program.pools.size()));
  pool.name = "ordinary";
  plan.program.pools.push_back(pool);
  return plan.buffer(name, true, 0, pool.id);
}

/// Writes a buffer and sums it, with collectives on another buffer before and after as barriers.
Program written_and_summed(bool barrier_before, bool barrier_after, bool registered = true) {
  PlanBuilder plan;
  const BufferId a = plan.buffer("a", true);
  const BufferId barrier = in_ordinary_pool(plan, "barrier");
  if (registered) plan.program.pools[0].registered = plan.reductions;
  plan.kernel(plan.reduce, "write", {}, {a});
  if (barrier_before) plan.collective(plan.reduce, "ready", plan.reductions, barrier);
  plan.collective(plan.reduce, "sum", plan.reductions, a);
  if (barrier_after) plan.collective(plan.reduce, "taken", plan.reductions, barrier);
  plan.kernel(plan.reduce, "read", {a}, {});
  return plan.finish();
}

TEST(Registered, NeedsABarrierOnBothSides) {
  EXPECT_THAT(rules_of(written_and_summed(true, true)), IsEmpty());
  EXPECT_THAT(rules_of(written_and_summed(false, true)), ElementsAre("MF205"));
  EXPECT_THAT(rules_of(written_and_summed(true, false)), ElementsAre("MF205"));
  EXPECT_EQ(test::finding_of(written_and_summed(true, false), "MF205").missing,
            "sum (reduce_scatter) -> read (reduce_scatter)");
}

TEST(Registered, OrdinaryBuffersNeedNone) {
  EXPECT_THAT(rules_of(written_and_summed(false, false, false)), IsEmpty());
}

TEST(Registered, NeighbouringCollectivesOverlapBetweenRanks) {
  const auto sums = [](int between) {
    PlanBuilder plan;
    const BufferId a = plan.buffer("a", true);
    const BufferId barrier = in_ordinary_pool(plan, "barrier");
    plan.program.pools[0].registered = plan.reductions;
    plan.collective(plan.reduce, "sum", plan.reductions, a);
    for (int i = 0; i < between; ++i)
      plan.collective(plan.reduce, "barrier", plan.reductions, barrier);
    return rules_of(plan.finish());
  };
  EXPECT_THAT(sums(0), ElementsAre("MF205"));  // a step's sum and the next one's
  EXPECT_THAT(sums(1), IsEmpty());
}

}  // namespace
}  // namespace mfsdp
