// Work that crashes or never ends does not end the process that started it.
#include "verify/mutation/run_apart.hpp"

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <map>

namespace mfsdp {
namespace {

using namespace std::chrono_literals;

std::map<std::size_t, ApartEnd> ends_of(std::size_t count, const ApartSettings& settings,
                                        const std::function<void(std::size_t)>& work) {
  std::map<std::size_t, ApartEnd> ends;
  const auto run = run_apart(
      count, settings,
      [&](std::size_t i, const auto& tell) {
        tell("begun " + std::to_string(i));
        work(i);
        tell(", ended");
      },
      [&](std::size_t i, ApartEnd end) { return ends[i] = std::move(end), true; });
  EXPECT_TRUE(run) << run.error().message();
  return ends;
}

TEST(RunApart, TellsWhatEachHasTold) {
  const auto ends = ends_of(20, {.at_once = 3, .limit = 60s}, [](std::size_t) {});
  ASSERT_EQ(ends.size(), 20U);
  for (const auto& [i, end] : ends) {
    EXPECT_EQ(end.told, "begun " + std::to_string(i) + ", ended");
    EXPECT_EQ(end.signal, 0);
    EXPECT_FALSE(end.late);
  }
}

TEST(RunApart, SaysHowACrashAndAHangEnded) {
  const auto ends = ends_of(3, {.at_once = 2, .limit = 500ms}, [](std::size_t i) {
    if (i == 0) ::kill(::getpid(), SIGKILL);
    if (i == 1) ::pause();
  });
  ASSERT_EQ(ends.size(), 3U);
  EXPECT_EQ(ends.at(0).signal, SIGKILL);
  EXPECT_EQ(ends.at(0).told, "begun 0");
  EXPECT_TRUE(ends.at(1).late);
  EXPECT_EQ(ends.at(2).told, "begun 2, ended");
}

TEST(RunApart, EndsWhereItIsToldTo) {
  std::size_t done = 0;
  const auto run = run_apart(
      100, {.at_once = 4, .limit = 60s},
      [](std::size_t i, const auto&) {
        if (i > 1) ::pause();
      },
      [&](std::size_t, const ApartEnd&) { return ++done < 2; });
  EXPECT_TRUE(run);
  EXPECT_EQ(done, 2U);
}

}  // namespace
}  // namespace mfsdp
