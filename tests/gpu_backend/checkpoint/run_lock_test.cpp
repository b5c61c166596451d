#include "gpu_backend/checkpoint/run_lock.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <thread>

#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(RunLock, ASecondRunIsToldWhoHasIt) {
  const test::ScratchFolder folder;
  const auto first = RunLock::take(folder / "saves", "first\nrun");
  ASSERT_TRUE(first) << first.error().message();
  EXPECT_EQ(first->missing(), "");
  const auto second = RunLock::take(folder / "saves", "second");
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().fault, Fault::environment);
  EXPECT_THAT(second.error().message(),
              AllOf(HasSubstr("saves: another run saves here: run first\\nrun, process " +
                              std::to_string(::getpid()) + " on host "),
                    testing::ContainsRegex("since 20..-..-.. ..:..:.. UTC; wait until")));
}

TEST(RunLock, EndsWithItsOwnerAndStaysAFile) {
  const test::ScratchFolder folder;
  {
    const auto lock = RunLock::take(folder / "saves", "first");
    ASSERT_TRUE(lock);
  }
  EXPECT_TRUE(std::filesystem::exists(folder / "saves" / kLockName));
  EXPECT_TRUE(RunLock::take(folder / "saves", "second"));
}

TEST(RunLock, AKilledRunHoldsNothing) {
  const test::ScratchFolder folder;
  const pid_t child = test::start_child([&] {
    const auto lock = RunLock::take(folder / "saves", "killed");
    test::write_file(folder / "has it", lock ? "yes" : "no");
    while (true) ::pause();
    return 0;
  });
  while (test::read_file(folder / "has it").empty())
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  const auto refused = RunLock::take(folder / "saves", "next");
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message(),
              HasSubstr("run killed, process " + std::to_string(child) + " on host"));
  ::kill(child, SIGKILL);
  test::wait_for(child);
  const auto next = RunLock::take(folder / "saves", "next");
  EXPECT_TRUE(next) << next.error().message();
}

TEST(RunLock, AnOwnerThatEndsMeanwhileIsWaitedFor) {
  const test::ScratchFolder folder;
  auto first = RunLock::take(folder / "saves", "first");
  ASSERT_TRUE(first);
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const RunLock gone = std::move(*first);
  });
  EXPECT_TRUE(RunLock::take(folder / "saves", "second", std::chrono::minutes(1)));
  ends.join();
}

TEST(RunLock, ALineThatCannotBeReadNamesNobody) {
  for (const std::string line : {"", "{}", "[1]", "\x01\xff", R"({"host": 1, "process": "x"})"}) {
    const test::ScratchFolder folder;
    const auto first = RunLock::take(folder / "saves", "first");
    ASSERT_TRUE(first);
    test::write_file(folder / "saves" / kLockName, line);
    const auto second = RunLock::take(folder / "saves", "second");
    ASSERT_FALSE(second);
    EXPECT_THAT(second.error().message(), HasSubstr("saves here: another run; wait until")) << line;
  }
}

TEST(RunLock, AFolderThatCannotBeMade) {
  const test::ScratchFolder folder;
  test::write_file(folder / "file", "");
  const auto lock = RunLock::take(folder / "file" / "saves", "x");
  ASSERT_FALSE(lock);
  EXPECT_THAT(lock.error().message(), HasSubstr("file/saves: cannot be made a folder"));
}

}  // namespace
}  // namespace mfsdp
