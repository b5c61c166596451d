// Ranks that agree and are well.
#include "gpu_backend/launch/rendezvous.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "tests/gpu_backend/launch/ranks.hpp"

namespace mfsdp {
namespace {

using test::bytes_of;
using test::kIdentity;
using test::Meeting;
using test::patient;
using test::run_threads;

using Ranks = std::function<void(Rendezvous&)>;

/// Ranks on threads of their own, that have met.
void run_ranks(std::int64_t world, const Ranks& work) {
  const Meeting meeting;
  run_threads(world, [&](std::int64_t rank) {
    auto met = Rendezvous::meet(meeting.launch(rank, world), kIdentity, patient());
    ASSERT_TRUE(met) << met.error().message();
    work(**met);
    EXPECT_TRUE((*met)->barrier());
    EXPECT_FALSE((*met)->failure());
  });
}

class RendezvousOf : public testing::TestWithParam<std::int64_t> {};
INSTANTIATE_TEST_SUITE_P(Worlds, RendezvousOf, testing::Values(1, 2, 5));

TEST_P(RendezvousOf, AllGatherByRankOfAnyLengths) {
  run_ranks(GetParam(), [](Rendezvous& ranks) {
    for (std::size_t round = 0; round < 20; ++round) {
      const auto own = static_cast<std::size_t>(ranks.rank());
      const auto all = ranks.all_gather(bytes_of(std::string(own * round, 'a')));
      ASSERT_TRUE(all) << all.error().message();
      ASSERT_EQ(std::ssize(*all), ranks.world_size());
      for (std::size_t r = 0; r < all->size(); ++r)
        EXPECT_EQ((*all)[r], bytes_of(std::string(r * round, 'a')));
    }
  });
}

TEST_P(RendezvousOf, BroadcastIsRank0s) {
  run_ranks(GetParam(), [](Rendezvous& ranks) {
    const auto got = ranks.broadcast(bytes_of("of " + std::to_string(ranks.rank())));
    ASSERT_TRUE(got) << got.error().message();
    EXPECT_EQ(*got, bytes_of("of 0"));
  });
}

TEST_P(RendezvousOf, NobodyPassesABarrierBeforeAllHaveCome) {
  std::atomic<std::int64_t> come = 0;
  run_ranks(GetParam(), [&](Rendezvous& ranks) {
    for (std::int64_t round = 1; round <= 50; ++round) {
      ++come;
      ASSERT_TRUE(ranks.barrier());
      EXPECT_GE(come, round * ranks.world_size());
      ASSERT_TRUE(ranks.barrier());  // so that no rank counts the next round before all have
                                     // checked
    }
  });
}

TEST(Rendezvous, CarriesMoreThanASocketHolds) {
  constexpr std::size_t kLong = std::size_t{5} << 20;
  run_ranks(3, [](Rendezvous& ranks) {
    const auto letter = static_cast<char>('a' + ranks.rank());
    const auto all = ranks.all_gather(bytes_of(std::string(kLong, letter)));
    ASSERT_TRUE(all) << all.error().message();
    EXPECT_EQ((*all)[2], bytes_of(std::string(kLong, 'c')));
  });
}

TEST(Rendezvous, RanksMayComeInAnyOrderAndLate) {
  const Meeting meeting;
  run_threads(4, [&](std::int64_t rank) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50 * (3 - rank)));
    EXPECT_TRUE(Rendezvous::meet(meeting.launch(rank, 4), kIdentity, patient()));
  });
}

TEST(Rendezvous, Rank0ListensWhereNobodyDoesForIt) {
  std::uint16_t port = 0;
  {
    port = Meeting().port();
  }  // free again
  run_threads(3, [&](std::int64_t rank) {
    RankLaunch launch;
    launch.place = {.rank = rank, .world_size = 3, .local_rank = rank, .local_world_size = 3};
    launch.meeting = {.address = "localhost", .port = port};
    launch.secret = test::kSecret;
    const auto met = Rendezvous::meet(launch, kIdentity, patient());
    ASSERT_TRUE(met) << met.error().message();
    EXPECT_TRUE((*met)->barrier());
  });
}

// ---- grants ------------------------------------------------------------------------------------

TEST(Rendezvous, TurnsRunAsFarAsRank0AllowsThem) {
  run_ranks(3, [](Rendezvous& ranks) {
    if (ranks.rank() == 0) {
      ranks.grant({.turns = 2});
      ranks.grant({.turns = 1});  // grants never shrink
      EXPECT_TRUE(ranks.await_turn(1).value());
      ranks.grant({.turns = 4, .last = true});
      ranks.grant({.turns = 9});  // ignored: the grant above was the last
    }
    for (std::int64_t turn = 0; turn < 4; ++turn) EXPECT_TRUE(ranks.await_turn(turn).value());
    EXPECT_FALSE(ranks.await_turn(4).value());
  });
}

TEST(Rendezvous, Rank0HearsWhoWouldStop) {
  run_ranks(3, [](Rendezvous& ranks) {
    if (ranks.rank() == 2) {
      ranks.request_stop();
      ranks.request_stop();
    }
    ASSERT_TRUE(ranks.barrier());  // frames of a rank come in their order
    EXPECT_TRUE(ranks.rank() == 1 || ranks.stop_requested());
  });
}

}  // namespace
}  // namespace mfsdp
