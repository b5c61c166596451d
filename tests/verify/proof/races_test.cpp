#include "verify/proof/order/races.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/plan_builder.hpp"

namespace mfsdp {
namespace {

using test::drop_op;
using test::finding_of;
using test::PlanBuilder;
using test::rules_of;
using testing::ElementsAre;
using testing::IsEmpty;

/// One weight gathered, used and given back, twice a step in two buffers that share a place:
///
///   gather    acquire a | fill a | record fa | wait ua | release a | acquire b | fill b | ...
///   compute   wait fa | use a | record ua | wait fb | use b | record ub
struct TwoInOnePlace : PlanBuilder {
  BufferId a = buffer("a");
  BufferId b = buffer("b", false, 0);
  OpId filled;    ///< the wait for a's fill
  OpId used;      ///< the wait for a's use
  OpId released;  ///< a's release

  TwoInOnePlace() {
    for (const BufferId id : {a, b}) {
      const std::string name = program.buffers[id.value].name;
      acquire(gather, id);
      kernel(gather, "fill " + name, {}, {id});
      record(gather, "filled " + name);
      const OpId fill_wait = wait(compute, "filled " + name);
      kernel(compute, "use " + name, {id}, {});
      record(compute, "used " + name);
      const OpId use_wait = wait(gather, "used " + name);
      const OpId release_op = release(gather, id);
      if (id != a) continue;
      filled = fill_wait;
      used = use_wait;
      released = release_op;
    }
  }
};

TEST(Races, OrderedAccessesAreClean) { EXPECT_THAT(rules_of(TwoInOnePlace().finish()), IsEmpty()); }

TEST(Races, UseDoesNotWaitForTheFill) {
  TwoInOnePlace plan;
  Program program = plan.finish();
  drop_op(program, plan.filled);
  EXPECT_THAT(rules_of(program), ElementsAre("MF101"));
  const Finding finding = finding_of(program, "MF101");
  EXPECT_EQ(finding.buffer, plan.a);
  EXPECT_EQ(finding.begin, 0);
  EXPECT_EQ(finding.end, 256);
  EXPECT_EQ(finding.places.size(), 2U);
  EXPECT_EQ(finding.missing, "fill a (all_gather) -> use a (compute)");
  EXPECT_EQ(finding.message,
            "nothing orders fill a (all_gather) and use a (compute), which both touch bytes [0, "
            "256) of buffer 'a' (pool 'device')");
}

TEST(Races, ReleaseDoesNotWaitForTheUse) {
  TwoInOnePlace plan;
  Program program = plan.finish();
  drop_op(program, plan.used);
  EXPECT_THAT(rules_of(program), ElementsAre("MF101"));
  EXPECT_EQ(finding_of(program, "MF101").missing, "use a (compute) -> release a (all_gather)");
}

TEST(Races, ReleaseIsIssuedBeforeAUse) {
  PlanBuilder plan;
  const BufferId a = plan.buffer("a");
  plan.acquire(plan.gather, a);
  plan.kernel(plan.gather, "fill", {}, {a});
  plan.record(plan.gather, "filled");
  plan.wait(plan.compute, "filled");
  plan.kernel(plan.reduce, "race", {a}, {});  // so that all pairs are compared
  plan.release(plan.gather, a);
  plan.kernel(plan.compute, "late", {a}, {});
  plan.record(plan.compute, "done");
  plan.wait(plan.gather, "done");
  const Program program = plan.finish();
  const auto proof = prove(program);
  ASSERT_TRUE(proof.has_value());
  const auto late = std::ranges::find(proof->findings, "late (compute) -> release a (all_gather)",
                                      &Finding::missing);
  ASSERT_NE(late, proof->findings.end());
  EXPECT_EQ(late->message,
            "nothing orders late (compute) and release a (all_gather), which both touch bytes [0, "
            "256) of buffer 'a' (pool 'device')");
  // The order that shows it: the release runs, and then the use.
  ASSERT_GE(late->interleaving.size(), 2U);
  EXPECT_EQ(late->interleaving.back().name, "late");
  EXPECT_NE(std::ranges::find(late->interleaving, "release a", &Place::name),
            late->interleaving.end());
}

TEST(Races, NextOwnerDoesNotWaitForTheRelease) {
  // b is acquired on compute, which does not know that a was released.
  PlanBuilder plan;
  const BufferId a = plan.buffer("a");
  const BufferId b = plan.buffer("b", false, 128);
  plan.acquire(plan.gather, a);
  plan.release(plan.gather, a);
  plan.record(plan.gather, "released");
  const OpId wait = plan.wait(plan.compute, "released");
  plan.acquire(plan.compute, b);
  plan.release(plan.compute, b);
  plan.record(plan.compute, "done");
  plan.wait(plan.gather, "done");
  Program program = plan.finish();
  program.pools[0].alignment = 128;
  EXPECT_THAT(rules_of(program), IsEmpty());
  drop_op(program, wait);
  EXPECT_THAT(rules_of(program), ElementsAre("MF101"));
  const Finding finding = finding_of(program, "MF101");
  EXPECT_EQ(finding.missing, "release a (all_gather) -> acquire b (compute)");
  // b starts 128 bytes into a, which ends 128 bytes into b.
  EXPECT_EQ(finding.begin, 0);
  EXPECT_EQ(finding.end, 128);
}

TEST(Races, UseAfterRelease) {
  PlanBuilder plan;
  const BufferId a = plan.buffer("a");
  plan.acquire(plan.compute, a);
  plan.kernel(plan.compute, "write", {}, {a});
  plan.release(plan.compute, a);
  EXPECT_THAT(rules_of(plan.finish()), IsEmpty());
  plan.kernel(plan.compute, "late", {a}, {});
  EXPECT_THAT(rules_of(plan.finish()), ElementsAre("MF102"));
  const Finding finding = finding_of(plan.finish(), "MF102");
  EXPECT_EQ(finding.places.front().name, "late");
  ASSERT_EQ(finding.interleaving.size(), 3U);
  EXPECT_EQ(finding.interleaving[0].name, "acquire a");
  EXPECT_EQ(finding.interleaving[1].name, "release a");
}

TEST(Races, UseBeforeAcquire) {
  PlanBuilder plan;
  const BufferId a = plan.buffer("a");
  plan.kernel(plan.compute, "early", {a}, {});
  plan.acquire(plan.compute, a);
  plan.release(plan.compute, a);
  EXPECT_THAT(rules_of(plan.finish()), ElementsAre("MF102"));
}

TEST(Races, TwoLiveBuffersInOnePlace) {
  for (const std::int64_t offset : {0, 128, 256}) {
    PlanBuilder plan;
    plan.program.pools[0].alignment = 128;
    const BufferId a = plan.buffer("a");
    const BufferId b = plan.buffer("b", false, offset);
    plan.acquire(plan.compute, a);
    plan.acquire(plan.compute, b);
    plan.release(plan.compute, b);
    plan.release(plan.compute, a);
    if (offset < PlanBuilder::kBytes)
      EXPECT_THAT(rules_of(plan.finish()), ElementsAre("MF103")) << offset;
    else
      EXPECT_THAT(rules_of(plan.finish()), IsEmpty());
  }
}

TEST(Races, PersistentBuffersSharePlace) {
  PlanBuilder plan;
  plan.buffer("a", true);
  EXPECT_THAT(rules_of(plan.finish()), IsEmpty());
  plan.buffer("b", true, 0);
  EXPECT_THAT(rules_of(plan.finish()), ElementsAre("MF103"));
}

TEST(Races, TransientBufferOverPersistentOne) {
  PlanBuilder plan;
  plan.buffer("state", true);
  const BufferId a = plan.buffer("a", false, 0);
  plan.acquire(plan.compute, a);
  plan.release(plan.compute, a);
  EXPECT_THAT(rules_of(plan.finish()), ElementsAre("MF103"));
}

TEST(Races, AcquiredAndReleasedTwice) {
  PlanBuilder plan;
  const BufferId a = plan.buffer("a");
  plan.acquire(plan.compute, a);
  const OpId again = plan.acquire(plan.compute, a);
  plan.release(plan.compute, a);
  const OpId twice = plan.release(plan.compute, a);
  Program program = plan.finish();
  EXPECT_THAT(rules_of(program), ElementsAre("MF106", "MF107"));
  drop_op(program, again);
  EXPECT_THAT(rules_of(program), ElementsAre("MF107"));
  drop_op(program, twice);
  EXPECT_THAT(rules_of(program), IsEmpty());
}

TEST(Races, NeverReleasedGrowsWithEveryStep) {
  PlanBuilder plan;
  const BufferId a = plan.buffer("a");
  plan.acquire(plan.compute, a);
  EXPECT_THAT(rules_of(plan.finish()), ElementsAre("MF006", "MF106"));
}

TEST(Races, SegmentsStateWhatIsLive) {
  PlanBuilder plan;
  const BufferId a = plan.buffer("a");
  plan.acquire(plan.compute, a);
  plan.program.plans[0].segments[0].live_out = {a};
  plan.segment("last");
  plan.program.plans[0].segments[1].live_in = {a};
  plan.release(plan.compute, a);
  EXPECT_THAT(rules_of(plan.finish()), IsEmpty());
  plan.program.plans[0].segments[1].live_in.clear();
  EXPECT_THAT(rules_of(plan.finish()), ElementsAre("MF006"));
  plan.program.plans[0].segments[1].live_in = {a};
  plan.program.plans[0].segments[1].live_out = {a};
  EXPECT_THAT(rules_of(plan.finish()), ElementsAre("MF006"));
}

/// Kernels on two streams that touch parts of one persistent buffer, unordered.
std::set<std::string> both_touch(const Operand& a, const Operand& b, std::int64_t ranks = 2) {
  PlanBuilder plan(ranks);
  plan.buffer("shared", true);
  plan.kernel(plan.compute, "first", {a});
  plan.kernel(plan.gather, "second", {b});
  return rules_of(plan.finish());
}

TEST(Races, OnlyConflictingBytesCount) {
  const BufferId id(0);
  const auto bytes = PlanBuilder::bytes;
  EXPECT_THAT(both_touch(bytes(id, Access::read, 0, 256), bytes(id, Access::read, 0, 256)),
              IsEmpty());
  EXPECT_THAT(both_touch(bytes(id, Access::write, 0, 128), bytes(id, Access::write, 128, 256)),
              IsEmpty());
  EXPECT_THAT(both_touch(bytes(id, Access::write, 0, 129), bytes(id, Access::read, 128, 256)),
              ElementsAre("MF101"));
  EXPECT_THAT(both_touch(bytes(id, Access::scratch, 0, 129), bytes(id, Access::read, 128, 256)),
              ElementsAre("MF101"));
}

TEST(Races, RowsOfOneMatrixInterleave) {
  // Columns [0, 8) and [8, 16) of 16 rows of 16 bytes: their spans meet, their bytes do not.
  Operand left = PlanBuilder::bytes(BufferId(0), Access::write);
  left.shape = {16, 8};
  left.strides = {16, 1};
  Operand right = left;
  right.offset = 8;
  EXPECT_THAT(both_touch(left, right), IsEmpty());
  right.offset = 7;
  right.access = Access::read;
  EXPECT_THAT(both_touch(left, right), ElementsAre("MF101"));
}

TEST(Races, EveryRankIsLookedAt) {
  // Rank r writes [64 r, 64 r + 64). A read of [192, 256) meets rank 3 alone.
  Operand slice = PlanBuilder::bytes(BufferId(0), Access::write, 0, 64);
  slice.rank_strides = {{.axis = Axis::dp_shard, .bytes = 64}};
  const Operand read = PlanBuilder::bytes(BufferId(0), Access::read, 192, 256);
  EXPECT_THAT(both_touch(slice, read, 3), IsEmpty());
  EXPECT_THAT(both_touch(slice, read, 4), ElementsAre("MF101"));
  // Slices that no rank has in common, though rank 0's second is rank 1's first.
  Operand own = PlanBuilder::bytes(BufferId(0), Access::write, 0, 32);
  own.rank_strides = {{.axis = Axis::dp_shard, .bytes = 32}};
  Operand next = own;
  next.offset = 32;
  EXPECT_THAT(both_touch(own, next, 4), IsEmpty());
  next.rank_strides.clear();
  EXPECT_THAT(both_touch(own, next, 4), ElementsAre("MF101"));
}

TEST(Races, HostFillsMemoryOfACopyThatRuns) {
  PlanBuilder plan;
  const BufferId pinned = plan.port("pinned");
  const BufferId staged = plan.buffer("staged", true);
  plan.copy(plan.h2d, "tokens", CopyKind::h2d, pinned, staged);
  plan.record(plan.h2d, "copied");
  EXPECT_THAT(rules_of(plan.finish()), IsEmpty());
  // A second copy from the same memory, whose record does not cover the first one.
  plan.copy(plan.gather, "again", CopyKind::h2d, pinned, staged);
  plan.record(plan.gather, "copied again");
  const Program program = plan.finish();
  EXPECT_THAT(rules_of(program), ElementsAre("MF101"));
  const auto proof = prove(program);
  EXPECT_THAT(proof->findings, testing::Contains(testing::Field(
                                   &Finding::missing, "tokens (h2d) -> fill of again (host)")));
}

TEST(Races, CopyWithoutRecordBehindIt) {
  PlanBuilder plan;
  const BufferId pinned = plan.port("pinned");
  const BufferId staged = plan.buffer("staged", true);
  plan.record(plan.h2d, "copied");
  plan.copy(plan.h2d, "tokens", CopyKind::h2d, pinned, staged);
  EXPECT_THAT(rules_of(plan.finish()), testing::Contains("MF108"));
}

TEST(Races, CollectivesOfOneGroupAreNotOrdered) {
  PlanBuilder plan;
  const BufferId a = plan.buffer("a", true);
  const BufferId b = plan.buffer("b", true);
  plan.add(plan.gather, "begin", GroupBegin{.communicator = plan.gathers});
  plan.collective(plan.gather, "first", plan.gathers, a);
  const OpId second = plan.collective(plan.gather, "second", plan.gathers, b);
  plan.add(plan.gather, "end", GroupEnd{.communicator = plan.gathers});
  Program program = plan.finish();
  EXPECT_THAT(rules_of(program), IsEmpty());
  std::get<Collective>(test::op_at(program, second).body).output.buffer = a;
  EXPECT_THAT(rules_of(program), ElementsAre("MF101"));
}

TEST(Races, CommunicatorOrdersItsCollectives) {
  PlanBuilder plan;
  const BufferId a = plan.buffer("a", true);
  plan.collective(plan.gather, "first", plan.gathers, a);
  const OpId second = plan.collective(plan.reduce, "second", plan.gathers, a);
  Program program = plan.finish();
  EXPECT_THAT(rules_of(program), IsEmpty());
  std::get<Collective>(test::op_at(program, second).body).communicator = plan.reductions;
  EXPECT_THAT(rules_of(program), ElementsAre("MF101"));
}

TEST(Races, HostWaitOrdersWhatIsIssuedAfterIt) {
  PlanBuilder plan;
  const BufferId a = plan.buffer("a", true);
  plan.kernel(plan.gather, "write", {}, {a});
  plan.record(plan.gather, "written");
  const OpId wait = plan.host_wait("written");
  plan.kernel(plan.compute, "read", {a}, {});
  plan.record(plan.compute, "read");
  plan.wait(plan.gather, "read");
  Program program = plan.finish();
  EXPECT_THAT(rules_of(program), IsEmpty());
  drop_op(program, wait);
  EXPECT_THAT(rules_of(program), ElementsAre("MF101"));
}

}  // namespace
}  // namespace mfsdp
