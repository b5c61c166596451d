#include "core/plan/lifetimes.hpp"

#include <gtest/gtest.h>

#include "core/plan/happens_before.hpp"
#include "tests/support/tiny_program.hpp"

namespace mfsdp {
namespace {

using test::tiny_program;

TEST(HappensBefore, FollowsStreamsAndEvents) {
  const Program program = tiny_program();
  const HappensBefore order(program, program.plans[0], 1);
  // 1 gather, 2 record, 3 wait, 5 gemm, 7 record, 8 wait, 9 release; 4 acquire of the activation.
  EXPECT_TRUE(order.before(1, 5));  // gather -> record -> wait -> gemm
  EXPECT_TRUE(order.before(5, 9));  // gemm -> record -> wait -> release
  EXPECT_FALSE(order.before(5, 1));
  EXPECT_FALSE(order.before(1, 1));
}

TEST(HappensBefore, NothingOrdersStreamsWithoutAWait) {
  Program program = tiny_program();
  std::erase_if(program.plans[0].segments[0].ops,
                [](const Op& op) { return op.kind() == OpKind::wait; });
  const HappensBefore order(program, program.plans[0], 1);
  EXPECT_FALSE(order.before(1, 4));  // gather and gemm
  EXPECT_FALSE(order.before(4, 1));
}

TEST(HappensBefore, OpsOfOneCommunicatorSerialise) {
  Program program = tiny_program();
  auto& ops = program.plans[0].segments[0].ops;
  Op again = ops[1];
  again.id = OpId(50);
  again.stream = StreamId(0);
  ops = {ops[1], again};
  const HappensBefore order(program, program.plans[0], 1);
  EXPECT_TRUE(order.before(0, 1));
}

TEST(HappensBefore, TheHostHoldsBackWhatItIssuesLater) {
  Program program = tiny_program();
  auto& ops = program.plans[0].segments[0].ops;
  Op host = ops[3];
  host.id = OpId(50);
  host.body = HostWait{.event = EventId(0), .bindings = {{OpId(2), 0}}};
  ops = {ops[1], ops[2], host, ops[5]};  // gather, record | host waits | gemm
  const HappensBefore order(program, program.plans[0], 1);
  EXPECT_TRUE(order.before(0, 3));
}

TEST(Lifetimes, EndWhereTheAcquiringStreamLearnsOfTheRelease) {
  const Program program = tiny_program();
  const auto pools = buffer_lifetimes(program, program.plans[0]);
  ASSERT_TRUE(pools.has_value()) << pools.error().message();
  ASSERT_EQ(pools->size(), 2U);
  // all_gather: acquire 0, gather 1, record 2, wait 3, release 4; five positions a step. Its own
  // release ends the lifetime at the next position.
  EXPECT_EQ((*pools)[0].length, 5);
  EXPECT_EQ((*pools)[0].buffers[0].lifetimes, (std::vector<Lifetime>{{0, 5}}));
  // compute: wait 0, acquire 1, gemm 2, release 3, record 4.
  EXPECT_EQ((*pools)[1].buffers[0].lifetimes, (std::vector<Lifetime>{{1, 4}}));
}

TEST(Lifetimes, LastUntilAnotherStreamsReleaseIsKnown) {
  Program program = tiny_program();
  auto& ops = program.plans[0].segments[0].ops;
  // The activation is released on all_gather after its wait for `used`; compute learns of that
  // only at the next step's wait for `gathered`: position 5 + 0 of a step of 5, wrapped to 0.
  Op release = ops[6];
  release.stream = StreamId(1);
  ops.erase(ops.begin() + 6);
  ops.push_back(release);
  const auto pools = buffer_lifetimes(program, program.plans[0]);
  ASSERT_TRUE(pools.has_value()) << pools.error().message();
  EXPECT_EQ((*pools)[1].length, 4);
  // Waiting is what makes it known: the position after the wait of the next step is 4 + 1... the
  // wait itself carries the knowledge, so the lifetime is [1, 4) and nothing wraps.
  EXPECT_EQ((*pools)[1].buffers[0].lifetimes, (std::vector<Lifetime>{{1, 4}}));
}

TEST(Lifetimes, RefuseWhatIsNeverReleased) {
  Program program = tiny_program();
  program.plans[0].segments[0].ops.pop_back();
  const auto pools = buffer_lifetimes(program, program.plans[0]);
  ASSERT_FALSE(pools.has_value());
  EXPECT_NE(pools.error().message().find("acquires buffer 'weights' while it is live"),
            std::string::npos)
      << pools.error().message();
}

TEST(Lifetimes, RefuseAReleaseOfADeadBuffer) {
  Program program = tiny_program();
  auto& ops = program.plans[0].segments[0].ops;
  ops.erase(ops.begin());
  const auto pools = buffer_lifetimes(program, program.plans[0]);
  ASSERT_FALSE(pools.has_value());
  EXPECT_EQ(pools.error().message(),
            "op 9 (weights): releases buffer 'weights', which is not live");
}

TEST(Lifetimes, RefuseAPoolThatTwoStreamsAcquireFrom) {
  Program program = tiny_program();
  program.buffers[2].pool = PoolId(0);
  program.buffers[2].offset = Bytes(512);
  const auto pools = buffer_lifetimes(program, program.plans[0]);
  ASSERT_FALSE(pools.has_value());
  EXPECT_EQ(pools.error().message(),
            "pool 'memory': buffer 'activation' is acquired on another stream than the pool's "
            "others");
}

TEST(Lifetimes, CountTheMostThatAnyInterleavingHasLive) {
  const Program program = tiny_program();
  EXPECT_EQ(max_live_buffers(program, program.plans[0], Category::unsharded_weight), 1);
  EXPECT_EQ(max_live_buffers(program, program.plans[0], Category::unsharded_grad), 0);
}

}  // namespace
}  // namespace mfsdp
