#include "verify/proof/memory/registered_memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <string>

#include "tests/support/configurations.hpp"
#include "tests/support/edit_plan.hpp"
#include "tests/support/plan_builder.hpp"
#include "verify/proof/prove.hpp"

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

// ---- from window to window --------------------------------------------------------------------

/// Gathers by copy engines, symmetric reductions, of two microbatches: the second one's sums do not
/// go straight into the main gradient.
test::EditedPlan windowed() {
  PlanConfig config = test::small_config(2);
  config.gather = Transport::copy_engine;
  config.reduce = Transport::symmetric;
  config.microbatches = 2;
  return test::EditedPlan(config);
}

/// The message of MF205 after an edit, or nothing.
std::string window_finding(const std::function<void(test::EditedPlan&)>& edit) {
  test::EditedPlan plan = windowed();
  edit(plan);
  const Proof proof = prove(plan.program, {}).value();
  for (const Finding& finding : proof.findings)
    if (finding.rule == "MF205") return finding.message.substr(finding.message.find('('));
  return {};
}

Communicator& communicator_of(Program& program, const std::string& purpose) {
  return *std::ranges::find(program.communicators, purpose, &Communicator::purpose);
}

Pool& pool_of(Program& program, const std::string& name) {
  return *std::ranges::find(program.pools, name, &Pool::name);
}

TEST(Windows, ThePlannersAreClean) { EXPECT_THAT(rules_of(windowed().program), IsEmpty()); }

TEST(Windows, BothOperandsLieInThem) {
  EXPECT_EQ(
      window_finding([](auto& plan) { pool_of(plan.program, "model_weights").registered.reset(); }),
      "(embedding.all_gather) asks for transport copy_engine, but its input is in pool "
      "'model_weights', which is not registered with the communicator");
  EXPECT_EQ(window_finding(
                [](auto& plan) { pool_of(plan.program, "reduced_gradients").registered.reset(); }),
            "(head.reduce_scatter) asks for transport symmetric, but its output is in pool "
            "'reduced_gradients', which is not registered with the communicator");
}

TEST(Windows, BeginAtOneOffsetOnAllRanks) {
  EXPECT_EQ(window_finding([](auto& plan) {
              Collective& sum = plan.collective("first", "head.reduce_scatter");
              sum.output.buffer = sum.input.buffer;
              sum.output.offset = 0;
              sum.output.rank_strides = {{.axis = Axis::dp_shard, .bytes = 64}};
            }),
            "(head.reduce_scatter) asks for transport symmetric, but its output is at another "
            "offset on each "
            "rank: 64 bytes further for each rank of dp_shard");
}

TEST(Windows, PartsOfGradientsLieInThem) {
  PlanConfig config = test::small_config(2);
  config.reduce = Transport::copy_engine;
  const auto finding = [&](const std::function<void(test::EditedPlan&)>& edit) {
    test::EditedPlan plan(config);
    edit(plan);
    return test::finding_of(plan.program, "MF205").message;
  };
  EXPECT_THAT(
      finding([](auto& plan) { pool_of(plan.program, "gradient_parts").registered.reset(); }),
      HasSubstr("(head.all_to_all) asks for transport copy_engine, but its output is in pool "
                "'gradient_parts', which is not registered with the communicator"));
  EXPECT_THAT(finding([](auto& plan) {
                communicator_of(plan.program, "reduce_scatter").transport = Transport::symmetric;
              }),
              HasSubstr("(head.all_to_all) asks for transport symmetric, but no symmetric kernel "
                        "does an all_to_all"));
}

TEST(Windows, TransportsDoWhatTheyCan) {
  EXPECT_EQ(window_finding([](auto& plan) {
              communicator_of(plan.program, "reduce_scatter").transport = Transport::copy_engine;
            }),
            "(head.reduce_scatter) asks for transport copy_engine, but copy engines cannot add");
}

TEST(Windows, StandInNoGroup) {
  EXPECT_EQ(
      window_finding([](auto& plan) {
        std::vector<Op>& ops = plan.program.plans[0].segments[0].ops;
        const auto gather = std::ranges::find(ops, OpKind::collective, &Op::kind);
        const CommunicatorId id = std::get<Collective>(gather->body).communicator;
        Op begin = *gather;
        begin.id = OpId(1'000'001);
        begin.group.reset();
        begin.body = GroupBegin{.communicator = id};
        Op end = begin;
        end.id = OpId(1'000'002);
        end.body = GroupEnd{.communicator = id};
        const auto placed = ops.insert(gather, begin);
        ops.insert(placed + 2, end);
      }),
      "(embedding.all_gather) asks for transport copy_engine, but it is in a group of collectives");
}

// Without the barriers of windows the same memory would be touched after a collective has ended.
TEST(Windows, RingsOnThemAreFound) {
  EXPECT_NE(window_finding([](auto& plan) {
              communicator_of(plan.program, "all_gather").transport = Transport::nccl;
            }),
            "");
}

}  // namespace
}  // namespace mfsdp
