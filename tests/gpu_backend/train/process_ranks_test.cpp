#include "gpu_backend/train/process_ranks.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "tests/gpu_backend/launch/ranks.hpp"

namespace mfsdp {
namespace {

using test::run_threads;

Result<std::unique_ptr<Rendezvous>> meet(const test::Meeting& meeting, std::int64_t rank,
                                         std::int64_t world) {
  return Rendezvous::meet(meeting.launch(rank, world), test::kIdentity, test::patient());
}

TEST(ProcessHostGather, GivesEveryRanksNumbersToAll) {
  const test::Meeting meeting;
  run_threads(3, [&](std::int64_t rank) {
    const auto met = meet(meeting, rank, 3);
    ASSERT_TRUE(met) << met.error().message();
    ProcessHostGather gather(**met);
    const std::vector<double> own(static_cast<std::size_t>(rank), 0.5 * static_cast<double>(rank));
    const auto all = gather.all_gather(rank, own, [] { return Result<void>(); });
    ASSERT_TRUE(all) << all.error().message();
    EXPECT_EQ(*all, (std::vector<std::vector<double>>{{}, {0.5}, {1.0, 1.0}}));
    EXPECT_TRUE((*met)->barrier());
  });
}

TEST(AgreeOnStart, IsAnErrorOnEveryRankWhereOneSeesAnOlderSave) {
  for (const bool differs : {false, true}) {
    const test::Meeting meeting;
    run_threads(3, [&](std::int64_t rank) {
      const auto met = meet(meeting, rank, 3);
      ASSERT_TRUE(met) << met.error().message();
      ProcessHostGather gather(**met);
      TrainPosition start{.step = 4, .samples = 24, .tokens = 384};
      if (differs && rank == 2) start = {.step = 2, .samples = 12, .tokens = 192};
      const auto agreed = agree_on_start(gather, rank, start, [] { return Result<void>(); });
      EXPECT_EQ(agreed.has_value(), !differs);
      if (!agreed) {
        EXPECT_EQ(agreed.error().message(),
                  "--resume: rank 0 goes on after step 4, rank 2 after step 2: expected the same "
                  "saves on all hosts");
      }
      EXPECT_TRUE((*met)->barrier());
    });
  }
}

/// Number of plans that each rank ran after rank `asks` requested a stop before its number `at`, of
/// `turns` at most.
std::vector<std::int64_t> turns_run(std::int64_t world, std::int64_t asks, std::int64_t at,
                                    std::int64_t turns) {
  const test::Meeting meeting;
  std::vector<std::int64_t> ran(static_cast<std::size_t>(world), 0);
  run_threads(world, [&](std::int64_t rank) {
    const auto met = meet(meeting, rank, world);
    ASSERT_TRUE(met) << met.error().message();
    std::int64_t& done = ran[static_cast<std::size_t>(rank)];
    ProcessStopPoint stop(**met, [&] { return rank == asks && done >= at; });
    while (done < turns) {
      const auto runs = stop.runs(done);
      ASSERT_TRUE(runs) << runs.error().message();
      if (!*runs) break;
      ++done;
    }
    EXPECT_EQ(stop.stopped(), done < turns);
    EXPECT_TRUE((*met)->barrier());
  });
  return ran;
}

RC_GTEST_PROP(ProcessStopPoint, AllRanksRunTheSameTurns, ()) {
  const auto world = *rc::gen::inRange<std::int64_t>(1, 5);
  const auto asks = *rc::gen::inRange<std::int64_t>(0, world);
  const auto at = *rc::gen::inRange<std::int64_t>(0, 20);
  const std::int64_t turns = 1'000'000;  // a request that is lost would not end
  const auto ran = turns_run(world, asks, at, turns);
  RC_ASSERT(std::ranges::all_of(ran, [&](std::int64_t each) { return each == ran[0]; }));
  RC_ASSERT(ran[0] >= at);
  // Rank 0's own wish is known before its next turn, after those that it has allowed.
  const std::int64_t ahead = world == 1 || at == 0 ? 0 : ProcessStopPoint::kTurnsAhead;
  if (asks == 0) RC_ASSERT(ran[0] == at + ahead);
}

TEST(ProcessStopPoint, WithoutARequestAllTurnsRun) {
  EXPECT_THAT(turns_run(3, 1, 50, 50), testing::Each(50));
}

TEST(ProcessStopPoint, ARankAheadOfRank0NeedNotWait) {
  // Rank 0 asks about one turn; rank 1 gets its answers for that and two more while rank 0 sleeps.
  const test::Meeting meeting;
  std::atomic<bool> is_through = false;
  run_threads(2, [&](std::int64_t rank) {
    const auto met = meet(meeting, rank, 2);
    ASSERT_TRUE(met) << met.error().message();
    ProcessStopPoint stop(**met, [] { return false; });
    if (rank == 0) {
      EXPECT_TRUE(stop.runs(0).value());
      while (!is_through) std::this_thread::yield();
    } else {
      for (std::int64_t turn = 0; turn <= ProcessStopPoint::kTurnsAhead; ++turn)
        EXPECT_TRUE(stop.runs(turn).value());
      is_through = true;
    }
    EXPECT_TRUE((*met)->barrier());
  });
}

TEST(ProcessStopPoint, AFailureEndsTheWait) {
  const test::Meeting meeting;
  run_threads(2, [&](std::int64_t rank) {
    const auto met = meet(meeting, rank, 2);
    ASSERT_TRUE(met) << met.error().message();
    ProcessStopPoint stop(**met, [] { return false; });
    if (rank == 0) (*met)->fail("no more");
    EXPECT_EQ(test::message_of(stop.runs(0)), "rank 0: no more");
  });
}

}  // namespace
}  // namespace mfsdp
