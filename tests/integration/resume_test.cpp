// mfsdp-exec that is killed at any moment and goes on from what it saved.
#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>
#include <string>

#include "reports/store/store.hpp"
#include "tests/support/run_tool.hpp"
#include "tests/support/samples.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::string_view kRun =
    "--model llama_nano --data synthetic --world-size 2 --seq-len 16 --output jsonl";
constexpr std::string_view kTwelve = "--steps 12 --no-save";

/// The lines of steps by number, less what depends on the clock.
std::map<std::int64_t, json> steps_in(const std::string& output) {
  std::map<std::int64_t, json> steps;
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    const json object = json::parse(line, nullptr, false);
    if (!object.is_object() || object.value("event", "") != "step") continue;
    json& step = steps[object["step"]];
    for (const char* key : {"loss", "grad_norm", "learning_rate", "seen_tokens", "tokens"})
      step[key] = object[key];
  }
  return steps;
}

/// The files of the last save but for the manifest, which names the run.
std::map<std::string, std::string> last_save(const std::filesystem::path& saves) {
  std::map<std::string, std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(saves / "step-00000012"))
    if (entry.path().extension() == ".state")
      files[entry.path().filename()] = test::read_file(entry.path());
  return files;
}

/// Starts the tool with its output in `out`.
pid_t start(const std::string& arguments, const std::filesystem::path& out) {
  const pid_t child = ::fork();
  if (child != 0) return child;
  const int file = ::open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0666);
  ::dup2(file, STDOUT_FILENO);
  ::dup2(file, STDERR_FILENO);
  const std::string line = fmt::format("exec '{}' {}", test::kExec.string(), arguments);
  ::execl("/bin/sh", "sh", "-c", line.c_str(), nullptr);
  ::_exit(127);
}

/// Each run is killed at a random moment after its first steps; saves are as frequent as steps, so
/// that most die within one. The last is left alone.
TEST(Resume, GoesOnBitForBitThoughKilledTwentyTimes) {
  const test::ScratchFolder folder;
  const auto saves = folder / "saves";
  const auto straight = test::run_exec(
      fmt::format("{} {} --save '{}'", kRun, kTwelve, (folder / "straight").string()));
  ASSERT_EQ(straight.status, 0);
  const auto expected = steps_in(straight.out);
  ASSERT_EQ(expected.size(), 12U);

  std::mt19937 random(20);
  std::map<std::int64_t, json> seen;
  constexpr int kKills = test::kOneCase ? 2 : 20;
  int killed = 0;
  while (killed < kKills) {
    const auto out = folder / fmt::format("out-{}", killed);
    const pid_t child =
        start(fmt::format("{} {} --save '{}' --save-every 1 --keep-saves 2 --resume auto", kRun,
                          kTwelve, saves.string()),
              out);
    // Waits for the first line of a step, then for a moment of the next few saves.
    while (steps_in(test::read_file(out)).empty() && ::waitpid(child, nullptr, WNOHANG) == 0)
      ::usleep(500);
    ::usleep(static_cast<useconds_t>(random() % 12'000));
    ::kill(child, SIGKILL);
    test::wait_for(child);
    ++killed;
    for (const auto& [step, line] : steps_in(test::read_file(out))) {
      ASSERT_TRUE(expected.contains(step)) << step;
      EXPECT_EQ(line, expected.at(step)) << "step " << step;
      seen[step] = line;
    }
    if (seen.contains(12)) std::filesystem::remove_all(saves);  // again from the start
  }
  const auto last =
      test::run_exec(fmt::format("{} {} --save '{}' --resume auto", kRun, kTwelve, saves.string()));
  ASSERT_EQ(last.status, 0) << last.out;
  for (const auto& [step, line] : steps_in(last.out)) EXPECT_EQ(line, expected.at(step));
  EXPECT_EQ(last_save(saves), last_save(folder / "straight"));
}

/// A job that is put into the queue again has the command line of the first time.
TEST(Resume, AutoBeginsAndGoesOnByTheSameCommandLine) {
  const test::ScratchFolder folder;
  const auto saves = folder / "runs" / "a";
  const auto straight = test::run_exec(
      fmt::format("{} {} --save '{}'", kRun, kTwelve, (folder / "straight").string()));
  ASSERT_EQ(straight.status, 0);
  const auto expected = steps_in(straight.out);
  const std::string again =
      fmt::format("{} {} --save '{}' --save-every 1 --resume auto", kRun, kTwelve, saves.string());
  for (int killed = 0; killed < 3; ++killed) {
    const auto out = folder / fmt::format("out-{}", killed);
    const pid_t child = start(again, out);
    // The line of a second step comes after the save of the first.
    while (steps_in(test::read_file(out)).size() < 2 && ::waitpid(child, nullptr, WNOHANG) == 0)
      ::usleep(500);
    ::kill(child, SIGKILL);
    test::wait_for(child);
    for (const auto& [step, line] : steps_in(test::read_file(out)))
      EXPECT_EQ(line, expected.at(step)) << "step " << step;
  }
  ASSERT_TRUE(std::filesystem::exists(saves / "latest"));
  const auto last = test::run_exec(again);
  ASSERT_EQ(last.status, 0) << last.out;
  EXPECT_FALSE(steps_in(last.out).contains(1));
  for (const auto& [step, line] : steps_in(last.out)) EXPECT_EQ(line, expected.at(step));
  EXPECT_EQ(last_save(saves), last_save(folder / "straight"));
  // And once more, when there is nothing left.
  const auto done = test::run_exec(again + " 2>&1");
  EXPECT_EQ(done.status, 0);
  EXPECT_THAT(done.out, HasSubstr("of --steps 12 nothing is left to train"));
}

TEST(Resume, AutoNeverTakesAnOlderSaveForTheNewest) {
  const test::ScratchFolder folder;
  const auto saves = folder / "saves";
  const std::string run =
      fmt::format("{} --no-save --save '{}' --save-every 2 --resume auto", kRun, saves.string());
  ASSERT_EQ(test::run_exec(run + " --steps 4").status, 0);
  std::filesystem::remove(saves / "step-00000004" / "manifest.json");
  const auto refused = test::run_exec(run + " --steps 6 2>&1");
  EXPECT_EQ(refused.status, 2);
  EXPECT_THAT(refused.out, HasSubstr("step-00000004/manifest.json"));
  EXPECT_THAT(refused.out, HasSubstr("; the save before it can be read: --resume " +
                                     (saves / "step-00000002").string()));
  const auto asked =
      test::run_exec(fmt::format("{} --no-save --save '{}' --resume '{}' --steps 6", kRun,
                                 saves.string(), (saves / "step-00000002").string()));
  ASSERT_EQ(asked.status, 0) << asked.out;
  EXPECT_TRUE(steps_in(asked.out).contains(3));
}

TEST(Resume, IsNotedInTheStore) {
  const test::ScratchFolder folder;
  const auto run = [&](const std::string& flags) {
    return test::run_exec(
        fmt::format("{} --db '{}' {} 2>&1", kRun, (folder / "runs.sqlite").string(), flags));
  };
  const std::string saves = (folder / "saves").string();
  ASSERT_EQ(run("--steps 5 --save " + saves).status, 0);
  ASSERT_EQ(run("--steps 8 --resume " + saves).status, 0);
  auto store = Store::open(folder / "runs.sqlite");
  ASSERT_TRUE(store) << store.error().message();
  const RunResult first = store->load(1).value();
  const RunResult second = store->load(2).value();
  EXPECT_FALSE(first.measured()->resumed);
  EXPECT_EQ(second.measured()->resumed, (ResumedFrom{.step = 5, .run_id = first.run_id}));
  ASSERT_EQ(second.measured()->steps.size(), 3U);
  EXPECT_EQ(second.measured()->steps.front().step, 6);
}

TEST(Resume, OfAnInterruptedRunLosesNoStep) {
  const test::ScratchFolder folder;
  const auto saves = folder / "saves";
  const auto out = folder / "out";
  const pid_t child =
      start(fmt::format("{} --no-save --steps 1000000 --save '{}'", kRun, saves.string()), out);
  while (steps_in(test::read_file(out)).empty()) ::usleep(1000);
  ::kill(child, SIGINT);
  EXPECT_EQ(test::wait_for(child), 130);
  const std::int64_t done = steps_in(test::read_file(out)).rbegin()->first;
  const json manifest = json::parse(test::read_file(saves / "latest" / "manifest.json"));
  EXPECT_EQ(manifest["step"], done);
}

TEST(Resume, ASecondJobInTheFolderEndsAtOnceAndTheFirstGoesOn) {
  const test::ScratchFolder folder;
  const auto out = folder / "out";
  const std::string job = fmt::format("{} --no-save --save '{}' --resume auto --save-every 1", kRun,
                                      (folder / "saves").string());
  const pid_t first = start(job + " --steps 1000000", out);
  while (steps_in(test::read_file(out)).empty()) ::usleep(1000);
  const auto second = test::run_exec(job + " --steps 1000000 2>&1");
  EXPECT_EQ(second.status, 3);
  EXPECT_THAT(second.out, HasSubstr(fmt::format("saves: another run saves here: run llama_nano, "
                                                "process {} on host ",
                                                first)));
  EXPECT_THAT(second.out, Not(HasSubstr("\"event\"")));  // it did not train
  const std::size_t seen = steps_in(test::read_file(out)).size();
  while (steps_in(test::read_file(out)).size() <= seen) ::usleep(1000);  // the first goes on
  // A job that was killed and is queued again gets in.
  ::kill(first, SIGKILL);
  EXPECT_EQ(test::wait_for(first), 1000 + SIGKILL);
  const auto next = folder / "next";
  const pid_t again = start(job + " --steps 1000000", next);
  while (steps_in(test::read_file(next)).empty()) ::usleep(1000);
  ::kill(again, SIGINT);
  EXPECT_EQ(test::wait_for(again), 130);
}

/// One rank's layout is another, so that equal files have gone through it and back.
TEST(Resume, MovesAStateToAnotherMeshAndBackWithoutAStep) {
  const test::ScratchFolder folder;
  const std::string two = (folder / "two").string();
  const std::string one = (folder / "one").string();
  const std::string back = (folder / "back").string();
  const auto run = [&](std::string_view ranks, const std::string& arguments) {
    return test::run_exec(fmt::format("--model llama_nano --data synthetic --seq-len 16 {} {} {}",
                                      kTwelve, ranks, arguments));
  };
  const std::string_view one_rank = "--world-size 1 --global-batch 2 --strategy optim";
  const std::string_view two_ranks = "--world-size 2";
  ASSERT_EQ(run(two_ranks, fmt::format("--save '{}'", two)).status, 0);
  const auto moved = run(one_rank, fmt::format("--resume '{}' --save '{}'", two, one));
  ASSERT_EQ(moved.status, 0) << moved.out;
  EXPECT_THAT(moved.out, HasSubstr("no step was done"));
  ASSERT_EQ(run(two_ranks, fmt::format("--resume '{}' --save '{}'", one, back)).status, 0);
  EXPECT_EQ(last_save(one).size(), 1U);
  EXPECT_EQ(last_save(two).size(), 2U);
  EXPECT_EQ(last_save(back), last_save(two));
}

}  // namespace
}  // namespace mfsdp
