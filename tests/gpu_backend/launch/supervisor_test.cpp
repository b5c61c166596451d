#include "gpu_backend/launch/supervisor.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <ostream>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/run_tool.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const std::filesystem::path kProgram = test::kBuild / "tests" / "mfsdp_supervised_ranks";
constexpr std::int64_t kRanks = 3;

class SupervisedRanks {
 public:
  /// Starts them; standard output and error go to files.
  SupervisedRanks(std::int64_t victim, const std::string& phase, const std::string& harm,
                  std::int64_t ranks = kRanks, const std::string& variables = "")
      : ranks_(ranks == 0 ? 1 : ranks) {
    // Ranks whose supervisor is gone become ours, so that their ends can be seen.
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const std::string line =
        fmt::format("exec env {} '{}' '{}' {} {} '{}' '{}' > '{}' 2> '{}'", variables,
                    kProgram.string(), folder_.path().string(), ranks, victim, phase, harm,
                    (folder_ / "out").string(), (folder_ / "err").string());
    supervisor_ =
        test::start_child([&] { return ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr); });
  }

  void signal(int number) const { ::kill(supervisor_, number); }

  /// Until each rank has left such a file.
  void await(const std::string& name) const {
    for (std::int64_t rank = 0; rank < ranks_; ++rank)
      while (test::read_file(folder_ / (name + std::to_string(rank))).empty() &&
             !std::filesystem::exists(folder_ / ("met" + std::to_string(rank))))
        ::usleep(1000);
  }

  /// The exit code, as wait_for gives it.
  int end() { return test::wait_for(supervisor_); }

  [[nodiscard]] std::string out() const { return test::read_file(folder_ / "out"); }
  [[nodiscard]] std::string err() const { return test::read_file(folder_ / "err"); }
  [[nodiscard]] pid_t rank(std::int64_t number) const {
    return std::stoi(test::read_file(folder_ / ("pid" + std::to_string(number))));
  }

  /// Ranks that still run.
  [[nodiscard]] std::vector<std::int64_t> left() const {
    std::vector<std::int64_t> left;
    for (std::int64_t number = 0; number < ranks_; ++number) {
      const auto file = folder_ / ("pid" + std::to_string(number));
      if (std::filesystem::exists(file) && ::kill(rank(number), 0) == 0) left.push_back(number);
    }
    return left;
  }

 private:
  test::ScratchFolder folder_;
  std::int64_t ranks_;
  pid_t supervisor_ = 0;
};

struct Harm {
  std::int64_t victim;
  const char* phase;
  const char* harm;
  int code;
  const char* says;  ///< what is on standard error

  /// Names the test: bytes of addresses would differ from run to run.
  friend void PrintTo(const Harm& harm, std::ostream* out) {
    *out << "rank " << harm.victim << ' ' << harm.phase << ' ' << harm.harm;
  }
};

class SupervisorEnds : public testing::TestWithParam<Harm> {};

TEST_P(SupervisorEnds, AllWithTheFirst) {
  const Harm& harm = GetParam();
  SupervisedRanks ranks(harm.victim, harm.phase, harm.harm);
  EXPECT_EQ(ranks.end(), harm.code);
  EXPECT_THAT(ranks.err(), HasSubstr(harm.says));
  EXPECT_THAT(ranks.left(), testing::IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Harms, SupervisorEnds,
    testing::Values(
        Harm{0, "start", "kill", 3, "supervisor: rank 0 was ended by signal 9 (Killed)\n"},
        Harm{2, "start", "exit 2", 2, ""},
        Harm{1, "attached", "kill", 3, "supervisor: rank 1 was ended by signal 9"},
        Harm{0, "meeting", "kill", 3, "[rank 1] rendezvous: rank 0 went away before all had come"},
        Harm{1, "meeting", "kill", 3, "supervisor: rank 1 was ended by signal 9"},
        Harm{0, "met", "kill", 3, "supervisor: rank 0 was ended by signal 9"},
        Harm{2, "met", "crash", 3, "supervisor: rank 2 was ended by signal 11"},
        Harm{0, "steps", "kill", 3, "[rank 1] rank 0: its "},
        Harm{1, "steps", "kill", 3, "[rank 2] rank 1: its "},
        Harm{1, "steps", "exit 2", 2, "[rank 2] rank 1: its "},
        Harm{2, "steps", "fail", 3, "[rank 1] rank 2: fails on purpose"},
        Harm{1, "steps", "stop", 3, "supervisor: rank 1 gave no sign of life within 0.5 s"},
        Harm{0, "steps", "stop", 3, "supervisor: rank 0 gave no sign of life within 0.5 s"},
        Harm{1, "attached", "stop", 3, "supervisor: rank 1 gave no sign of life within 0.5 s"},
        Harm{1, "steps", "hang", 3, "[rank 2] rank 1: its "},
        Harm{2, "steps", "hang at the end", 3, "supervisor: rank 2 did not end within 0.5 s"},
        Harm{1, "start", "never report", 3, "supervisor: rank 1 gave no sign of life within 1 s"},
        Harm{1, "steps", "kill, others deaf", 3, "supervisor: rank 1 was ended by signal 9"}));

TEST(Supervisor, GoodRanksEndWell) {
  SupervisedRanks ranks(0, "none", "end");
  EXPECT_EQ(ranks.end(), 0);
  // Rank 0's output passes through; lines of others are whole, and on standard error.
  EXPECT_EQ(ranks.out(), "out of rank 0\nsecond line\n");
  EXPECT_THAT(ranks.err(), AllOf(HasSubstr("[rank 1] out of rank 1\n"),
                                 HasSubstr("[rank 2] second line\n"), Not(HasSubstr("rank 0"))));
  EXPECT_THAT(ranks.left(), testing::IsEmpty());
}

class SupervisorSignal : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Signals, SupervisorSignal, testing::Values(SIGINT, SIGTERM, SIGHUP));

TEST_P(SupervisorSignal, ReachesAllRanks) {
  SupervisedRanks ranks(0, "none", "none");
  ranks.await("met");
  ranks.signal(GetParam());
  EXPECT_EQ(ranks.end(), 130);
  // The supervisor prints it once: rank 0's failure, whichever ranks also receive the signal.
  const std::string err = ranks.err();
  const auto said = err.find("stopping\n");
  EXPECT_NE(said, std::string::npos) << err;
  EXPECT_EQ(err.find("stopping\n", said + 1), std::string::npos) << err;
  EXPECT_THAT(ranks.left(), testing::IsEmpty());
}

TEST(Supervisor, AHangUpIsIgnoredUnderNohup) {
  SupervisedRanks ranks(0, "none", "none", kRanks, "nohup");
  ranks.await("met");
  ranks.signal(SIGHUP);
  ::usleep(300'000);  // ranks that are notified of it would end
  EXPECT_EQ(ranks.left().size(), kRanks);
  ranks.signal(SIGTERM);
  EXPECT_EQ(ranks.end(), 130);
}

TEST(Supervisor, RanksDieWithIt) {
  SupervisedRanks ranks(0, "none", "none");
  ranks.await("met");
  std::vector<pid_t> processes;
  for (std::int64_t rank = 0; rank < kRanks; ++rank) processes.push_back(ranks.rank(rank));
  ranks.signal(SIGKILL);
  EXPECT_EQ(ranks.end(), 1000 + SIGKILL);
  for (const pid_t process : processes) EXPECT_EQ(test::wait_for(process), 1000 + SIGKILL);
}

TEST(Supervisor, GuardsARankOfAnotherLauncher) {
  const char* const variables =
      "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=1";
  SupervisedRanks good(5, "none", "end", 0, variables);
  EXPECT_EQ(good.end(), 0);
  EXPECT_EQ(good.out(), "out of rank 0\nsecond line\n");
  SupervisedRanks hanging(0, "steps", "hang at the end", 0, variables);
  EXPECT_EQ(hanging.end(), 3);
  EXPECT_EQ(hanging.err(), "supervisor: rank 0 did not end within 0.5 s, and was ended\n");
  EXPECT_THAT(hanging.left(), testing::IsEmpty());
}

TEST(Supervisor, StartsNoRankOfSeveralHostsWithoutASecret) {
  const std::string place =
      "MFSDP_RANK=1 MFSDP_WORLD_SIZE=2 MFSDP_LOCAL_RANK=0 MFSDP_LOCAL_WORLD_SIZE=1 "
      "MFSDP_MASTER_ADDR=127.0.0.1 MFSDP_MASTER_PORT=1";
  SupervisedRanks without(0, "start", "exit 2", 0, place);
  EXPECT_EQ(without.end(), 3);  // the exit code of this program's errors
  EXPECT_THAT(without.err(), HasSubstr("environment, MFSDP_SECRET: is not set"));
  SupervisedRanks with(1, "start", "exit 2", 0, place + " MFSDP_SECRET=0123456789abcdef");
  EXPECT_EQ(with.end(), 2);  // the rank started
}

TEST(Supervisor, AProgramThatIsNone) {
  std::ostringstream err;
  RankLaunch launch;
  launch.starts_ranks = true;
  const auto code =
      supervise(launch, {.program = "/no/such/program", .arguments = {"x"}, .err = &err});
  ASSERT_FALSE(code);
  EXPECT_EQ(code.error().message(), "rank 0: does not start: No such file or directory");
}

}  // namespace
}  // namespace mfsdp
