// Runs whose store has no room, or none for a while.
#include "reports/session/run_store.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <sstream>
#include <string>

#include "reports/record/result_json.hpp"
#include "tests/support/sample_run.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::measured_run;
using test::sample_run;
using test::ScratchFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

StepResult step_number(std::int64_t number) {
  return {.step = number,
          .duration = Nanos(5),
          .loss = 2.5,
          .grad_norm = 0.5,
          .tokens = 48,
          .learning_rate = 1e-3};
}

RunProgress steps_of(std::int64_t first, std::int64_t last) {
  RunProgress progress;
  for (std::int64_t step = first; step <= last; ++step) progress.steps.push_back(step_number(step));
  return progress;
}

/// Simulates a disk with space for files of `bytes` bytes; can be undone.
void leave_room(rlim_t bytes) {
  std::signal(SIGXFSZ, SIG_IGN);
  rlimit limit{};
  ::getrlimit(RLIMIT_FSIZE, &limit);
  limit.rlim_cur = bytes;
  ::setrlimit(RLIMIT_FSIZE, &limit);
}
constexpr rlim_t kNoLimit = RLIM_INFINITY;

/// A run that is passed to a store, and all messages about it.
struct Telling {
  explicit Telling(const std::filesystem::path& path) { options.db = path.string(); }

  CommonOptions options;
  std::ostringstream out;
  std::ostringstream err;
  std::atomic<bool> interrupted = false;
  RunStore store{
      options,
      {.tool = "mfsdp-exec", .scenarios = {}, .out = out, .err = err, .interrupted = interrupted}};
  MeasuredRun run = measured_run("run-1", 40);

  /// Stores a run that goes on and three of its steps; then the disk is full. False where the run
  /// could not be stored.
  [[nodiscard]] bool begin_and_fill_the_disk() {
    run.status = RunStatus::running;
    if (!store.begin(run)) return false;
    store.append(steps_of(1, 3));
    leave_room(100);
    return true;
  }
};

/// Prints a fault and returns 1.
int wrong(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  return 1;
}

TEST(RunStore, ADiskThatFillsUpLosesNothingOnceThereIsRoomAgain) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  const pid_t child = test::start_child([&] {
    Telling telling(path);
    if (!telling.begin_and_fill_the_disk()) return wrong("begin");
    telling.store.append(steps_of(4, 5));
    telling.store.append(steps_of(6, 6));
    const std::string warning = "mfsdp-exec: warning: " + path.string() +
                                ": disk full or file size limit reached; steps are not stored "
                                "for now, training goes on\n";
    if (telling.err.str() != warning) return wrong(telling.err.str());
    leave_room(kNoLimit);
    telling.run.status = RunStatus::complete;
    telling.store.finish(telling.run);
    if (telling.err.str() != warning) return wrong(telling.err.str());
    return telling.store.note() == "stored in " + path.string() ? 0 : wrong(telling.store.note());
  });
  ASSERT_EQ(test::wait_for(child), 0);
  const auto stored = Store::open(path)->load(1);
  ASSERT_TRUE(stored) << stored.error().message();
  EXPECT_EQ(stored->status, RunStatus::complete);
  ASSERT_EQ(stored->measured()->steps.size(), 6U);
  EXPECT_EQ(stored->measured()->steps.back().step, 6);
  EXPECT_EQ(stored->timeline.size(), 40U);
}

TEST(RunStore, ADiskThatStaysFullIsSaidTwiceAndEndsNothing) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  const pid_t child = test::start_child([&] {
    Telling telling(path);
    if (!telling.begin_and_fill_the_disk()) return wrong("begin");
    telling.store.append(steps_of(4, 9));
    telling.store.finish(telling.run);
    leave_room(kNoLimit);
    const std::string full =
        "mfsdp-exec: warning: " + path.string() + ": disk full or file size limit reached; ";
    if (telling.err.str() != full + "steps are not stored for now, training goes on\n" + full +
                                 "not stored: steps 4 to 9 and the run's end\n")
      return wrong(telling.err.str());
    const std::string note =
        "stored in " + path.string() + ", without steps 4 to 9 and the run's end";
    return telling.store.note() == note ? 0 : wrong(telling.store.note());
  });
  ASSERT_EQ(test::wait_for(child), 0);
  EXPECT_EQ(Store::open(path)->load(1)->measured()->steps.size(), 3U);
}

/// The times of ops are most of a run's end.
TEST(RunStore, AnEndWithoutRoomForTheTimesOfOpsIsStoredWithoutThem) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  const pid_t child = test::start_child([&] {
    Telling telling(path);
    MeasuredRun head = measured_run("run-1");
    head.status = RunStatus::running;
    if (!telling.store.begin(head)) return wrong("begin");
    telling.store.append(steps_of(1, 3));
    telling.run = measured_run("run-1", 40'000);
    leave_room(400'000);
    telling.store.finish(telling.run);
    leave_room(kNoLimit);
    if (!telling.store.note().ends_with(", without the times of its ops"))
      return wrong(telling.store.note());
    return 0;
  });
  ASSERT_EQ(test::wait_for(child), 0);
  const auto stored = Store::open(path)->load(1);
  ASSERT_TRUE(stored) << stored.error().message();
  EXPECT_EQ(stored->status, RunStatus::complete);
  EXPECT_EQ(stored->measured()->steps.size(), 3U);
  EXPECT_TRUE(stored->timeline.empty());
}

TEST(RunStore, ARunThatBeginsOnAFullDiskIsStoredLater) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  const pid_t child = test::start_child([&] {
    Telling telling(path);
    leave_room(100);
    if (!telling.store.begin(telling.run)) return wrong("begin");
    telling.store.append(steps_of(1, 2));
    if (telling.store.note() != "not stored") return wrong(telling.store.note());
    leave_room(kNoLimit);
    telling.store.finish(telling.run);
    return telling.store.note() == "stored in " + path.string() ? 0 : wrong(telling.store.note());
  });
  ASSERT_EQ(test::wait_for(child), 0);
  EXPECT_EQ(Store::open(path)->load(1)->measured()->steps.size(), 2U);
}

TEST(RunStore, ARunThatIsRemovedMeanwhileIsSaidOnceAndStaysRemoved) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  Telling telling(path);
  telling.run.status = RunStatus::running;
  ASSERT_TRUE(telling.store.begin(telling.run));
  auto store = Store::open(path);
  const std::int64_t row = 1;
  ASSERT_EQ(store->remove({&row, 1}), 1);
  ASSERT_EQ(store->save(measured_run("run-2", 0)), row);
  telling.store.append(steps_of(1, 3));
  telling.store.append(steps_of(4, 5));
  telling.store.finish(telling.run);
  EXPECT_EQ(telling.err.str(), "mfsdp-exec: warning: " + path.string() +
                                   ": run run-1 was removed while it went on, as by mfsdp-report "
                                   "gc; nothing more of it is stored\n");
  EXPECT_EQ(telling.store.note(), "not stored: removed from " + path.string() + " meanwhile");
  EXPECT_EQ(store->load(row)->measured()->steps.size(), measured_run("run-2", 0).steps.size());
}

TEST(RunStore, MistakesInThePathAreErrorsBeforeTheRun) {
  const ScratchFolder folder;
  const auto error_of = [](const std::filesystem::path& path) {
    Telling telling(path);
    const auto begun = telling.store.begin(telling.run);
    EXPECT_EQ(telling.err.str(), "");
    return begun ? "" : begun.error().what;
  };
  EXPECT_THAT(error_of(folder / "no/s.sqlite"), StartsWith("cannot open the store: folder "));
  EXPECT_EQ(error_of(folder.path()), "is a directory, expected an mfsdp store");
  test::write_file(folder / "notes", std::string(5000, 'x'));
  EXPECT_EQ(error_of(folder / "notes"), "is not an mfsdp store (not an SQLite file)");
}

TEST(RunStore, AStoreThatAnotherProcessHoldsStopsNoTraining) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  ASSERT_TRUE(Store::open(path));  // the file is made
  Telling telling(path);
  telling.run.status = RunStatus::running;
  {
    SQLite::Database other(path.string(), SQLite::OPEN_READWRITE);
    const SQLite::Transaction held(other, SQLite::TransactionBehavior::EXCLUSIVE);
    ASSERT_TRUE(telling.store.begin(telling.run));
    telling.store.append(steps_of(1, 3));
    // Half a second was waited, not the half minute of results that are ready.
    EXPECT_EQ(
        telling.err.str(),
        "mfsdp-exec: warning: " + path.string() +
            ": locked by another process for more than 500 ms; the run is not stored for now, "
            "training goes on\n");
  }
  telling.run.status = RunStatus::complete;
  telling.store.finish(telling.run);
  EXPECT_EQ(telling.store.note(), "stored in " + path.string());
  const auto stored = Store::open(path)->load(1);
  ASSERT_TRUE(stored) << stored.error().message();
  EXPECT_EQ(stored->status, RunStatus::complete);
  EXPECT_EQ(stored->measured()->steps.size(), 3U);
}

TEST(RunStore, ResultsThatCannotBeStoredAreThereToBePrinted) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  const pid_t child = test::start_child([&] {
    Telling telling(path);
    leave_room(100);
    const RunResult run = sample_run();
    if (!telling.store.save({&run, 1})) return wrong("save");
    if (telling.store.note() != "not stored") return wrong(telling.store.note());
    const auto outcome = telling.store.outcome();
    if (outcome || outcome.error().fault != Fault::environment) return wrong("outcome");
    return outcome.error().what == "disk full or file size limit reached"
               ? 0
               : wrong(outcome.error().what);
  });
  EXPECT_EQ(test::wait_for(child), 0);
}

TEST(RunStore, TheNoteIsPrintable) {
  const ScratchFolder folder;
  Telling telling(folder / "a\x1b[31mb.sqlite");
  const RunResult run = sample_run();
  ASSERT_TRUE(telling.store.save({&run, 1}));
  EXPECT_THAT(telling.store.note(), AllOf(StartsWith("stored in "), HasSubstr("a\\x1b[31mb")));
}

}  // namespace
}  // namespace mfsdp
