// Ranks that are threads of one process: their stop point, and the exchange between their hosts.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "gpu_backend/train/host_gather.hpp"
#include "gpu_backend/train/stop_point.hpp"

namespace mfsdp {
namespace {

/// Calls run(rank) on a thread for each rank.
template <class Run>
void on_ranks(std::int64_t ranks, const Run& run) {
  std::vector<std::jthread> threads;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&run, rank] { run(rank); });
}

TEST(StopPoint, TheFirstToAskAnswersForAll) {
  bool requested = false;
  SharedStopPoint stop([&] { return requested; });
  EXPECT_TRUE(*stop.runs(0));
  EXPECT_TRUE(*stop.runs(1));
  requested = true;
  EXPECT_TRUE(*stop.runs(0));  // another rank, which is later
  EXPECT_TRUE(*stop.runs(1));
  EXPECT_FALSE(*stop.runs(2));
  requested = false;
  EXPECT_FALSE(*stop.runs(2));
  EXPECT_FALSE(*stop.runs(3));
}

TEST(StopPoint, RanksStopAtTheSameStepWheneverItIsAskedFor) {
  constexpr std::int64_t kRanks = 6;
  for (int asked_at = 0; asked_at < 200; asked_at += 7) {
    std::atomic<int> calls = 0;
    SharedStopPoint stop([&] { return ++calls > asked_at; });
    std::vector<std::int64_t> ran(kRanks);
    on_ranks(kRanks, [&](std::int64_t rank) {
      auto& steps = ran[static_cast<std::size_t>(rank)];
      while (*stop.runs(steps)) ++steps;
    });
    EXPECT_EQ(ran, std::vector<std::int64_t>(kRanks, asked_at));
  }
}

TEST(HostGather, EveryRankGetsTheValuesOfAllInRankOrder) {
  constexpr std::int64_t kRanks = 5;
  SharedHostGather gather(kRanks);
  std::atomic<int> right = 0;
  on_ranks(kRanks, [&](std::int64_t rank) {
    for (int round = 0; round < 100; ++round) {
      const double value = static_cast<double>(rank) * 1000 + round;
      const auto all = gather.all_gather(rank, {value, -value}, [] { return Result<void>(); });
      for (std::size_t r = 0; r < kRanks; ++r) {
        const double expected = static_cast<double>(r) * 1000 + round;
        right += all->at(r) == std::vector<double>{expected, -expected} ? 1 : 0;
      }
    }
  });
  EXPECT_EQ(right, kRanks * 100 * kRanks);
}

TEST(HostGather, ARankThatGaveUpIsNotWaitedFor) {
  SharedHostGather gather(2);
  const auto alone =
      gather.all_gather(0, {1}, [] { return Result<void>(fail("rank 1", "gave up")); });
  ASSERT_FALSE(alone);
  EXPECT_EQ(alone.error().message(), "rank 1: gave up");
}

TEST(HostGather, TellsOfEachWaitAndOfItsEnd) {
  std::vector<std::pair<std::int64_t, bool>> told;
  SharedHostGather gather(2,
                          [&](std::int64_t rank, bool waits) { told.emplace_back(rank, waits); });
  ASSERT_FALSE(gather.all_gather(0, {1}, [] { return Result<void>(fail("rank 1", "gave up")); }));
  ASSERT_TRUE(gather.all_gather(1, {2}, [] { return Result<void>(); }));
  EXPECT_EQ(told, (std::vector<std::pair<std::int64_t, bool>>{
                      {0, true}, {0, false}, {1, true}, {1, false}}));
}

}  // namespace
}  // namespace mfsdp
