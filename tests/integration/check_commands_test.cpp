// mfsdp-report check with two commands: their order, their samples, and what an interrupt leaves.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

struct CheckOutcome {
  int status = 0;
  std::string out;
  std::string err;
};

CheckOutcome run_check(const test::ScratchFolder& folder, const std::string& script) {
  test::write_file(folder / "check.sh", script);
  const std::string command =
      fmt::format("cd '{0}' && PATH='{1}/sim':'{1}/reports':\"$PATH\" sh check.sh >out 2>err",
                  folder.path().string(), MFSDP_BINARY_DIR);
  const int status = std::system(command.c_str());  // NOLINT(cert-env33-c): the test's own words
  return {.status = WEXITSTATUS(status),
          .out = test::read_file(folder / "out"),
          .err = test::read_file(folder / "err")};
}

/// Whether the process is gone, or is a zombie that was not waited for; ten seconds for the
/// kernel.
bool ends_soon(int process) {
  for (int i = 0; i < 1000; ++i) {
    std::ifstream in(fmt::format("/proc/{}/stat", process));
    const std::string stat{std::istreambuf_iterator<char>(in), {}};
    const std::size_t name = stat.rfind(')');
    if (name == std::string::npos || stat.substr(name + 2, 1) == "Z") return true;
    ::usleep(10'000);
  }
  return false;
}

TEST(CheckCommands, RunInTurn) {
  const test::ScratchFolder folder;
  const CheckOutcome outcome = run_check(
      folder,
      "mfsdp-report check --run 'printf A >>order' --against 'printf B >>order' --samples 5 "
      "--tolerance 100000%");
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(test::read_file(folder / "order"), "ABBAABBAAB");
  EXPECT_THAT(outcome.out, HasSubstr("5 and 5 runs"));
}

TEST(CheckCommands, ResultsAreComparedExactlyWhereNothingVaries) {
  const test::ScratchFolder folder;
  const std::string sim = "mfsdp-sim --model llama_nano --no-save --output json";
  const CheckOutcome worse = run_check(folder, "mfsdp-report check --samples 1 --run '" + sim +
                                                   " --prefetch 2' --against '" + sim + "'");
  EXPECT_EQ(worse.status, 1);
  EXPECT_THAT(
      worse.err,
      HasSubstr("Allocated memory 2,916,663,552 B, limit 2,916,638,464: 24.50 KiB (<0.1 %) over"));
  const CheckOutcome same = run_check(
      folder, "mfsdp-report check --samples 1 --run '" + sim + "' --against '" + sim + "'");
  EXPECT_EQ(same.status, 0) << same.err;
}

TEST(CheckCommands, FourSamplesAreInconclusive) {
  const test::ScratchFolder folder;
  const std::string check = "mfsdp-report check --run true --against true --samples 4 ";
  const CheckOutcome lenient = run_check(folder, check);
  EXPECT_EQ(lenient.status, 0);
  EXPECT_THAT(lenient.out, HasSubstr("inconclusive: 4 runs against 4"));
  EXPECT_EQ(run_check(folder, check + "--strict").status, 1);
}

TEST(CheckCommands, ACommandThatFailsIsNamed) {
  const test::ScratchFolder folder;
  const CheckOutcome outcome =
      run_check(folder, "mfsdp-report check --run 'exit 3' --against true");
  EXPECT_EQ(outcome.status, 2);
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(outcome.err, "mfsdp-report: 'exit 3': ended with exit status 3; nothing is compared\n");
  const CheckOutcome text =
      run_check(folder, "mfsdp-report check --run 'echo mfsdp.result/1' --against true");
  EXPECT_EQ(text.status, 2);
  EXPECT_THAT(text.err, HasSubstr("holds no result"));
}

TEST(CheckCommands, AnInterruptEndsWhatTheyStarted) {
  // The command leaves the ids of itself and of a child, then waits; both are gone afterwards.
  const test::ScratchFolder folder;
  const CheckOutcome outcome = run_check(folder,
                                         "mfsdp-report check --run 'sleep 600 & echo $! >child; "
                                         "echo $$ >self; wait' --against true &\n"
                                         "tool=$!\n"
                                         "while [ ! -s self ]; do sleep 0.05; done\n"
                                         "kill -TERM $tool\n"
                                         "wait $tool");
  EXPECT_EQ(outcome.status, 130);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("interrupted; ending the command"));
  for (const char* file : {"child", "self"}) {
    EXPECT_TRUE(ends_soon(std::stoi(test::read_file(folder / file)))) << file;
  }
}

}  // namespace
}  // namespace mfsdp
