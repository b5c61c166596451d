// Every rule, by records that were made or changed by hand.
#include "verify/conformance/conformance.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/conformance/recorded_run.hpp"
#include "verify/findings/render_findings.hpp"

namespace mfsdp {
namespace {

using test::broken_rules;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// Tokens come to the device, weights are gathered and used; the next gather waits until they are
/// not used any more, and the host until a second use has ended.
///
///   h2d             tokens r:come
///   all_gather      w:free gather r:here
///   compute                        w:come w:here use r:free         use_again r:done
///   reduce_scatter                                      second
///   host                                                                       w:done
class ARun : public ::testing::Test {
 protected:
  ARun() {
    test::PlanBuilder b;
    const BufferId host = b.port("pinned");
    const BufferId tokens = b.buffer("tokens", true);
    const BufferId weights = b.buffer("weights", true);
    copy = b.copy(b.h2d, "tokens", CopyKind::h2d, host, tokens);
    come = b.record(b.h2d, "come");
    wait_free = b.wait(b.gather, "free");
    gather = b.collective(b.gather, "gather", b.gathers, weights);
    here = b.record(b.gather, "here");
    b.wait(b.compute, "come");
    wait_here = b.wait(b.compute, "here");
    use = b.kernel(b.compute, "use", {weights}, {});
    b.record(b.compute, "free");
    second = b.collective(b.reduce, "second", b.gathers, tokens);
    use_again = b.kernel(b.compute, "use_again", {weights}, {});
    done = b.record(b.compute, "done");
    wait_done = b.host_wait("done");
    program = b.finish();
    launches = test::one_by_one(program, 2, 7, 2);
  }

  /// That op on a rank in the first recorded step, or in the second.
  OpLaunch& at(OpId op, std::int64_t rank = 0, std::int64_t step = 7) {
    for (OpLaunch& launch : launches)
      if (launch.op == op && launch.rank == rank && launch.step == step) return launch;
    throw std::logic_error("no such launch");
  }
  void drop(OpId op, std::int64_t step = 7) {
    std::erase_if(launches, [&](const OpLaunch& launch) {
      return launch.op == op && launch.rank == 0 && launch.step == step;
    });
  }
  static void move(OpLaunch& launch, std::int64_t by) {
    launch.begin += Nanos(by);
    launch.end += Nanos(by);
  }
  [[nodiscard]] std::set<std::string> broken() const { return broken_rules(program, launches); }
  [[nodiscard]] std::string message() const {
    const auto checked = check_conformance(program, program.plans[0], launches);
    return checked && !checked->findings.empty() ? checked->findings.front().message : "";
  }

  Program program;
  std::vector<OpLaunch> launches;
  OpId copy, come, wait_free, gather, here, wait_here, use, second, use_again, done, wait_done;
};

TEST_F(ARun, ThatFollowsItsPlanConforms) {
  const auto checked = check_conformance(program, program.plans[0], launches);
  ASSERT_TRUE(checked) << checked.error().message();
  EXPECT_THAT(checked->findings, IsEmpty());
  EXPECT_EQ(checked->ranks, 2);
  EXPECT_EQ(checked->steps, 2);
  EXPECT_EQ(checked->launches, 2 * 2 * 13);
  // Ops are issued 100 ns apart. A record counts from its begin, 3 ns after its issue; a wait for
  // it that comes next is over 13 ns after its own: 113 - 3.
  ASSERT_TRUE(checked->closest);
  EXPECT_EQ(checked->closest->slack, Nanos(110));
  EXPECT_EQ(checked->closest->first.name, "record done");
  EXPECT_EQ(checked->closest->then.name, "host_wait done");
  EXPECT_THAT(render_summary(*checked), HasSubstr("52 launches of 2 ranks in 2 steps; "));
}

TEST_F(ARun, ThatLeavesOutAnOpDoesNot) {
  drop(use);
  EXPECT_THAT(broken(), ElementsAre("MF801"));
  EXPECT_EQ(message(), "rank 0, step 7, only: use (compute) was not launched");
}

TEST_F(ARun, ThatLeavesOutAWaitDoesNotThoughItCameOutWell) {
  drop(wait_here);
  EXPECT_THAT(broken(), ElementsAre("MF801"));
  EXPECT_THAT(message(), HasSubstr("wait here (compute) was not launched"));
}

TEST_F(ARun, MayLeaveOutWaitsForWhatWasBeforeTheRecord) {
  drop(wait_free);  // the record of step 6 is not part of it
  EXPECT_THAT(broken(), IsEmpty());
  drop(wait_free, 8);
  EXPECT_THAT(broken(), ElementsAre("MF801"));
  for (OpLaunch& launch : launches)
    if (launch.step == 8) launch.drains = 1;  // the host had waited for all streams
  EXPECT_THAT(broken(), IsEmpty());
}

TEST_F(ARun, ThatDoesMoreThanThePlanDoesNot) {
  launches.push_back(launches.back());
  EXPECT_THAT(broken(), ElementsAre("MF802"));
  EXPECT_THAT(message(), HasSubstr("wait done"));
  EXPECT_THAT(message(), HasSubstr("which is 1 times a step"));
  launches.back().op = OpId(4000);
  EXPECT_EQ(message(), "rank 1, step 8: op 4000 was launched, and plan 'train' has no such op");
}

TEST_F(ARun, WhoseHostGoesAnotherWayDoesNot) {
  std::swap(at(use), at(use_again));
  EXPECT_THAT(broken(), ::testing::Contains("MF803"));
  EXPECT_THAT(message(), HasSubstr("was issued after"));
}

TEST_F(ARun, WhoseIssuesAreTurnedRoundDoesNot) {
  at(use).issued -= Nanos(150);  // before the wait before it, and the record before that
  EXPECT_THAT(broken(), ElementsAre("MF803"));
  EXPECT_THAT(message(), HasSubstr("was issued at"));
}

TEST_F(ARun, OnOtherStreamsDoesNot) {
  at(use).stream = StreamId(2);
  EXPECT_THAT(broken(), ElementsAre("MF804"));
  EXPECT_EQ(message(), "rank 0, step 7, only: use (compute) ran on reduce_scatter");
  at(use).stream = StreamId(77);
  EXPECT_THAT(message(), HasSubstr("ran on stream 77, which the program lacks"));
  at(use).stream.reset();
  EXPECT_THAT(message(), HasSubstr("use (compute) ran on host"));
  at(use).stream = StreamId(0);
  at(wait_done).stream = StreamId(0);
  EXPECT_THAT(message(), HasSubstr("wait done (host) ran on compute"));
}

TEST_F(ARun, WhoseStreamsRunTwoOpsAtOnceDoesNot) {
  // 200 ns lie between the begins of use and use_again, with the record between them.
  at(use).end = at(use_again).begin + Nanos(1);
  EXPECT_THAT(broken(), ::testing::Contains("MF805"));
}

TEST_F(ARun, ThatDoesNotWaitDoesNot) {
  // Gather and its record come late, the wait does not: 300 ns lie between gather and use.
  move(at(gather), 1000);
  move(at(here), 1000);
  EXPECT_THAT(broken(), ::testing::Contains("MF806"));
  const auto checked = check_conformance(program, program.plans[0], launches);
  const Finding& early = checked->findings.front();
  EXPECT_EQ(early.rule, "MF806");
  EXPECT_EQ(early.missing, "record here (all_gather) -> wait here (compute)");
  // Without the wait, the op after it came too early.
  drop(wait_here);
  EXPECT_THAT(check_conformance(program, program.plans[0], launches)->findings.at(1).missing,
              "record here (all_gather) -> use (compute)");
}

TEST_F(ARun, MayBeEarlyByTheResolutionOfItsClock) {
  move(at(here), 110);  // 3 ns after its issue; the wait, issued 200 ns later, ends at 213
  move(at(here), 105);  // so 5 ns after it
  EXPECT_THAT(broken(), ElementsAre("MF806"));
  EXPECT_THAT(broken_rules(program, launches, {.resolution = Nanos(4)}), ElementsAre("MF806"));
  EXPECT_THAT(broken_rules(program, launches, {.resolution = Nanos(5)}), IsEmpty());
}

TEST_F(ARun, WhoseHostDoesNotWaitDoesNot) {
  move(at(done), 200);
  EXPECT_THAT(message(), HasSubstr("host_wait done (host) went on at"));
  EXPECT_THAT(broken(), ElementsAre("MF806"));
}

TEST_F(ARun, WhoseHostIssuesWhileItWaitsDoesNot) {
  at(wait_done).end += Nanos(200);
  EXPECT_THAT(broken(), ElementsAre("MF806"));
  EXPECT_THAT(message(), HasSubstr("tokens (h2d) was issued at"));
}

TEST_F(ARun, WhoseHostTouchesMemoryThatACopyIsAtDoesNot) {
  // A step has 13 ops: the tokens of step 8 are issued 1300 ns after those of step 7, whose
  // copy is still in flight.
  at(copy).end = at(copy, 0, 8).issued + Nanos(1);
  at(come).begin = at(come).end = at(copy).end;
  const auto checked = check_conformance(program, program.plans[0], launches);
  EXPECT_THAT(checked->findings,
              ::testing::Contains(::testing::Field(
                  &Finding::message, HasSubstr("tokens (h2d) was issued at 1300 ns, 1 ns before "
                                               "record come (h2d) was over"))));
}

TEST_F(ARun, WhoseCollectivesOverlapDoesNot) {
  at(second).issued = at(gather).issued;
  at(gather).end += Nanos(1000);
  EXPECT_THAT(broken(), ::testing::Contains("MF807"));
}

TEST_F(ARun, WhoseRanksDoNotMeetDoesNot) {
  launches = test::one_by_one(program, 2, 7, 2, 50);
  EXPECT_THAT(broken(), IsEmpty());
  at(second, 0).end = at(second, 1).begin - Nanos(1);
  EXPECT_THAT(broken(), ElementsAre("MF808"));
  EXPECT_THAT(message(), HasSubstr("second (reduce_scatter) ended at"));
  EXPECT_THAT(message(), HasSubstr("1 ns before rank 1 had come to it"));
}

TEST_F(ARun, WhoseTimesCannotBeDoesNot) {
  at(use).end = at(use).begin - Nanos(1);
  EXPECT_THAT(broken(), ElementsAre("MF809"));
  at(use).end = at(use).begin;
  at(use).begin = at(use).end = at(use).issued - Nanos(1);
  EXPECT_THAT(broken(), ElementsAre("MF809"));
  EXPECT_THAT(broken_rules(program, launches, {.resolution = Nanos(1)}),
              testing::Not(testing::Contains("MF809")));
}

TEST_F(ARun, IsWaitedForByADrain) {
  // Only ops on its stream and its communicator wait for second, unless the host waits for all
  // streams: then the next step's tokens do.
  const auto early = ::testing::Contains(
      ::testing::Field(&Finding::missing, "second (reduce_scatter) -> tokens (h2d)"));
  at(second, 0).end = at(second, 1).end = at(copy, 0, 8).begin + Nanos(1);
  EXPECT_THAT(check_conformance(program, program.plans[0], launches)->findings,
              ::testing::Not(early));
  for (OpLaunch& launch : launches)
    if (launch.step == 8) launch.drains = 1;
  EXPECT_THAT(check_conformance(program, program.plans[0], launches)->findings, early);
}

TEST_F(ARun, NeedsARecord) {
  const auto error = [&](const std::vector<OpLaunch>& list) {
    return check_conformance(program, program.plans[0], list).error().message();
  };
  EXPECT_EQ(error({}), "launches: expected at least one");
  launches.push_back(launches.front());
  EXPECT_EQ(error(launches), "launches: those of rank 0 are not consecutive");
  launches.pop_back();
  for (OpLaunch& launch : launches)
    if (launch.rank == 1) launch.rank = 5;
  EXPECT_EQ(error(launches), "launches: expected ranks 0 to 1, found 5");
}

}  // namespace
}  // namespace mfsdp
