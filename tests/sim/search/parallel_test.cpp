#include "sim/search/parallel.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <stdexcept>
#include <thread>

namespace mfsdp {
namespace {

TEST(RunInParallel, EveryIndexOnceOnTheCallersThread) {
  for (const unsigned threads : {0U, 1U, 2U, 7U, 100U}) {
    std::set<std::size_t> seen;
    const auto caller = std::this_thread::get_id();
    run_in_parallel(
        50, threads, [](std::size_t i) { return i * i; },
        [&](std::size_t i, std::size_t square) {
          EXPECT_EQ(square, i * i);
          EXPECT_EQ(std::this_thread::get_id(), caller);
          EXPECT_TRUE(seen.insert(i).second);
          return true;
        });
    EXPECT_EQ(seen.size(), 50U);
  }
}

TEST(RunInParallel, NothingToDo) {
  run_in_parallel(
      0, 4, [](std::size_t i) { return i; },
      [](std::size_t, std::size_t) -> bool { throw std::logic_error("never"); });
}

TEST(RunInParallel, StopsWhenTheReceiverHasEnough) {
  std::atomic<int> started{0};
  int received = 0;
  run_in_parallel(
      1'000'000, 3, [&](std::size_t) { return ++started; },
      [&](std::size_t, int) { return ++received < 5; });
  EXPECT_GE(received, 5);
  // At most the waiting tasks (2 a thread) and those in flight (1 a thread), besides the five.
  EXPECT_LE(started, 5 + 3 * 3 + 3);
}

TEST(RunInParallel, ThrowsWhatTheWorkThrew) {
  EXPECT_THROW(run_in_parallel(
                   100, 4,
                   [](std::size_t i) -> int {
                     if (i == 20) throw std::runtime_error("work");
                     return 0;
                   },
                   [](std::size_t, int) { return true; }),
               std::runtime_error);
  EXPECT_THROW(run_in_parallel(
                   100, 4, [](std::size_t) { return 0; },
                   [](std::size_t, int) -> bool { throw std::logic_error("receiver"); }),
               std::logic_error);
}

}  // namespace
}  // namespace mfsdp
