// Whatever happens to the process or the disk: what was stored stays, and each run is wholly there
// or wholly absent.
//
// MFSDP_KILLS=2000 kills as often as that (60 by default):
//   MFSDP_KILLS=2000 build/fast/tests/reports_tests --gtest_filter='StoreSafety.*'
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "reports/record/result_json.hpp"
#include "reports/store/store.hpp"
#include "tests/support/faulty_vfs.hpp"
#include "tests/support/sample_run.hpp"
#include "tests/support/samples.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::FaultyMode;
using test::measured_run;
using test::sample_run;
using test::ScratchFolder;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

namespace fs = std::filesystem;

PredictedRun some_prediction(const std::string& id) { return sample_run(id, 60, 60); }

MeasuredRun some_measurement(const std::string& id) {
  MeasuredRun run = measured_run(id, 40);
  run.steps = {test::sample_step(1, Nanos(7), 2.0), test::sample_step(2, Nanos(6), 1.5)};
  return run;
}

/// Stores a prediction, then a run step by step; the ids of what was stored go to `stored`.
bool store_two(const fs::path& path, const std::string& suffix, std::vector<std::string>& stored) {
  auto store = Store::open(path, {.patience = std::chrono::milliseconds(0)});
  if (!store) return false;
  if (!store->save(some_prediction("p" + suffix))) return false;
  stored.push_back("p" + suffix);
  MeasuredRun run = some_measurement("m" + suffix);
  MeasuredRun begun = run;
  begun.status = RunStatus::running;
  begun.steps.clear();
  begun.timeline.clear();
  begun.launches.clear();
  const auto row = store->save(begun);
  if (!row) return false;
  stored.push_back("m" + suffix);
  if (!store->append(*row, run.run_id, {.steps = run.steps, .evaluations = {}})) return false;
  if (!store->finish(*row, run)) return false;
  stored.push_back("m" + suffix + " to its end");
  return true;
}

bool has(const std::vector<std::string>& stored, const std::string& id) {
  return std::ranges::find(stored, id) != stored.end();
}

/// The file is sound, every run in it is complete, and the runs reported as stored are there.
void expect_whole(const fs::path& path, const std::vector<std::string>& stored,
                  const std::string& when) {
  auto store = Store::open(path);
  ASSERT_TRUE(store) << when << ": " << store.error().message();
  {
    SQLite::Database database(path.string(), SQLite::OPEN_READWRITE);
    EXPECT_EQ(database.execAndGet("PRAGMA integrity_check").getString(), "ok") << when;
    EXPECT_EQ(database.execAndGet("SELECT count(*) FROM pragma_foreign_key_check").getInt(), 0)
        << when;
  }
  const auto runs = store->list();
  ASSERT_TRUE(runs) << when;
  std::set<std::string> there;
  for (const StoredRun& listed : *runs) {
    there.insert(listed.run_id);
    const auto run = store->load(listed.id);
    ASSERT_TRUE(run) << when << ": " << run.error().message();
    if (listed.source == "simulated") {
      EXPECT_EQ(to_json(*run), to_json(some_prediction(listed.run_id))) << when;
      EXPECT_EQ(run->timeline.size(), 60U) << when;
      EXPECT_EQ(run->predicted()->memory_timeline.size(), 60U) << when;
      continue;
    }
    const MeasuredRun whole = some_measurement(listed.run_id);
    const auto& steps = run->measured()->steps;
    EXPECT_TRUE(steps.empty() || steps.size() == 2U) << when;
    if (run->status == RunStatus::running) {
      EXPECT_TRUE(run->timeline.empty()) << when;
      EXPECT_FALSE(has(stored, listed.run_id + " to its end")) << when;
      continue;
    }
    EXPECT_EQ(to_json(*run), to_json(whole)) << when;
    EXPECT_EQ(run->timeline.size(), whole.timeline.size()) << when;
    EXPECT_EQ(run->measured()->launches, whole.launches) << when;
  }
  for (const std::string& id : stored) {
    EXPECT_TRUE(id.ends_with(" to its end") || there.contains(id)) << when << ": " << id;
  }
}

/// A store with one run, to copy. From here on nothing waits for the disk.
fs::path make_template(const ScratchFolder& folder) {
  test::use_faulty_files();
  const fs::path path = folder / "template.sqlite";
  EXPECT_TRUE(Store::open(path)->save(some_prediction("first")));
  return path;
}

std::int64_t kills_asked_for() {
  const char* text = std::getenv("MFSDP_KILLS");
  return text != nullptr ? std::max<std::int64_t>(std::atoll(text), 1) : test::cases(60);
}

/// Writes and syncs of store_two() on that file.
std::int64_t count_writes(const fs::path& path) {
  const int pipe_size = 2;
  int ends[pipe_size];
  EXPECT_EQ(::pipe(ends), 0);
  const pid_t child = test::start_child([&] {
    test::use_faulty_files();
    test::faulty_plan() = {.mode = FaultyMode::fail_once, .at = -1, .only_writes = true};
    std::vector<std::string> stored;
    if (!store_two(path, "0", stored)) return 1;
    const std::int64_t done = test::faulty_plan().done;
    return ::write(ends[1], &done, sizeof done) == sizeof done ? 0 : 2;
  });
  EXPECT_EQ(test::wait_for(child), 0);
  std::int64_t done = 0;
  EXPECT_EQ(::read(ends[0], &done, sizeof done), static_cast<ssize_t>(sizeof done));
  ::close(ends[0]);
  ::close(ends[1]);
  return done;
}

TEST(StoreSafety, AKillAtAnyWriteLeavesRunsWholeOrAbsent) {
  const ScratchFolder folder;
  const fs::path original = make_template(folder);
  const fs::path path = folder / "s.sqlite";
  fs::copy_file(original, path);
  const std::int64_t writes = count_writes(path);
  ASSERT_GT(writes, 10);
  const std::int64_t kills = kills_asked_for();
  const auto seed = std::random_device{}();
  std::mt19937_64 random(seed);
  std::int64_t killed = 0;
  for (std::int64_t i = 0; i < kills; ++i) {
    // The store goes on from what the killed ones left; now and then from the beginning.
    if (i % 20 == 0) {
      for (const char* end : {"", "-wal", "-shm"}) fs::remove(path.string() + end);
      fs::copy_file(original, path);
    }
    const auto at = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(writes)) + 1;
    const pid_t child = test::start_child([&] {
      test::use_faulty_files();
      test::faulty_plan() = {.mode = FaultyMode::kill, .at = at, .only_writes = true};
      std::vector<std::string> stored;
      return store_two(path, std::to_string(i % 20), stored) ? 0 : 1;
    });
    const int status = test::wait_for(child);
    ASSERT_TRUE(status == 1000 + SIGKILL || status == 0) << status;
    killed += status == 0 ? 0 : 1;
    expect_whole(path, {"first"},
                 "seed " + std::to_string(seed) + ", kill " + std::to_string(i) + " at write " +
                     std::to_string(at));
    if (HasFailure()) return;
  }
  EXPECT_GE(killed, kills * 5 / 6);  // a log that is begun anew takes fewer writes
}

/// Runs store_two() with the nth operation failing, for every nth there is. `stride`: of n.
void fail_every_operation(FaultyMode mode, const fs::path& original, const ScratchFolder& folder,
                          std::int64_t stride) {
  const fs::path path = folder / "s.sqlite";
  for (std::int64_t at = 1;; at += stride) {
    for (const char* end : {"", "-wal", "-shm"}) fs::remove(path.string() + end);
    if (!original.empty()) fs::copy_file(original, path);
    test::faulty_plan() = {.mode = mode, .at = at};
    std::vector<std::string> stored;
    if (!original.empty()) stored.emplace_back("first");
    const bool good = store_two(path, "1", stored);
    const bool reached = test::faulty_plan().done >= at;
    test::faulty_plan() = {};
    expect_whole(path, stored, "operation " + std::to_string(at));
    if (testing::Test::HasFailure()) return;
    if (!reached) {
      EXPECT_TRUE(good);
      EXPECT_GT(at, 50);
      return;
    }
  }
}

// In processes of their own: the file system stays the default one of a process.

TEST(StoreSafety, AnyFailureOfTheDiskLeavesRunsWholeOrAbsent) {
  const ScratchFolder folder;
  const fs::path original = make_template(folder);
  for (const FaultyMode mode : {FaultyMode::fail_once, FaultyMode::fail_from_then_on}) {
    const pid_t child = test::start_child([&] {
      test::use_faulty_files();
      fail_every_operation(mode, original, folder,
                           (mode == FaultyMode::fail_once ? 1 : 5) * (test::kOneCase ? 20 : 1));
      return testing::Test::HasFailure() ? 1 : 0;
    });
    EXPECT_EQ(test::wait_for(child), 0);
  }
}

TEST(StoreSafety, AnyFailureWhileAStoreIsMadeLeavesOneThatCanBeUsed) {
  const ScratchFolder folder;
  const pid_t child = test::start_child([&] {
    test::use_faulty_files();
    fail_every_operation(FaultyMode::fail_once, {}, folder, test::kOneCase ? 60 : 3);
    return testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(test::wait_for(child), 0);
}

TEST(StoreSafety, AKillWhileAStoreIsBroughtToThisVersionLosesNothing) {
  const ScratchFolder folder;
  const fs::path original = folder / "old.sqlite";
  {
    ASSERT_TRUE(Store::open(original, {.migrations = store_migrations().first(6)}));
    SQLite::Database database(original.string(), SQLite::OPEN_READWRITE);
    database.exec("INSERT INTO names (text) VALUES ('kept')");
  }
  const fs::path path = folder / "s.sqlite";
  for (std::int64_t at = 1;; at += test::kOneCase ? 50 : 5) {
    for (const char* end : {"", "-wal", "-shm"}) fs::remove(path.string() + end);
    fs::copy_file(original, path);
    const pid_t child = test::start_child([&] {
      test::use_faulty_files();
      test::faulty_plan() = {.mode = FaultyMode::kill, .at = at, .only_writes = true};
      return Store::open(path) ? 0 : 1;
    });
    const int status = test::wait_for(child);
    expect_whole(path, {}, "write " + std::to_string(at));
    SQLite::Database database(path.string(), SQLite::OPEN_READWRITE);
    EXPECT_EQ(database.execAndGet("SELECT count(*) FROM names WHERE text = 'kept'").getInt(), 1);
    if (status == 0) {
      EXPECT_GT(at, 10);
      return;
    }
    ASSERT_EQ(status, 1000 + SIGKILL);
    if (HasFailure()) return;
  }
}

TEST(StoreSafety, TwoHundredWritersAtOnceLoseNothing) {
  const ScratchFolder folder;
  const fs::path path = folder / "s.sqlite";  // does not exist: they race to create it, too
  constexpr std::size_t kWriters = test::kOneCase ? 8 : 200;
  std::vector<pid_t> children;
  for (std::size_t i = 0; i < kWriters; ++i)
    children.push_back(test::start_child([&] {
      auto store = Store::open(path, {.patience = std::chrono::minutes(5)});
      return store && store->save(some_prediction(std::to_string(i))) ? 0 : 1;
    }));
  for (const pid_t child : children) EXPECT_EQ(test::wait_for(child), 0);
  std::vector<std::string> ids;
  for (std::size_t i = 0; i < kWriters; ++i) ids.push_back(std::to_string(i));
  expect_whole(path, ids, "afterwards");
}

// ---- files that cannot be written, or are broken -----------------------------------------------

TEST(StoreSafety, AFileThatCannotBeWrittenCanBeRead) {
  const ScratchFolder folder;
  fs::create_directory(folder / "a b%20");
  const fs::path path = folder / "a b%20" / "ö?.sqlite";
  ASSERT_TRUE(Store::open(path)->save(some_prediction("a")));
  const fs::path old = folder / "a b%20" / "old.sqlite";
  ASSERT_TRUE(Store::open(old, {.migrations = store_migrations().first(6)}));
  for (const fs::path& file : {path, old}) fs::permissions(file, fs::perms(0444));
  fs::permissions(folder / "a b%20", fs::perms(0555));
  fs::permissions(folder.path(), fs::perms(0755));
  const pid_t child = test::start_child([&] {
    test::become_ordinary_user();
    auto store = Store::open(path, {.create = false, .for_reading = true});
    EXPECT_TRUE(store) << store.error().message();
    if (!store) return 1;
    EXPECT_EQ(store->list()->size(), 1U);
    EXPECT_TRUE(store->load(1));
    const auto saved = store->save(some_prediction("b"));
    EXPECT_FALSE(saved);
    EXPECT_THAT(saved.error().message(), HasSubstr("is read-only, cannot store results"));
    EXPECT_FALSE(Store::open(path));
    const auto earlier = Store::open(old, {.create = false, .for_reading = true});
    EXPECT_FALSE(earlier);
    EXPECT_THAT(earlier.error().message(),
                HasSubstr("is read-only and a store of version 6: copy it"));
    return testing::Test::HasFailure() ? 1 : 0;
  });
  EXPECT_EQ(test::wait_for(child), 0);
  fs::permissions(folder / "a b%20", fs::perms(0755));
}

TEST(StoreSafety, ABrokenRunIsNamedAndOthersStayReadable) {
  const ScratchFolder folder;
  const fs::path path = folder / "s.sqlite";
  std::int64_t page = 0;
  std::int64_t page_size = 0;
  {
    auto store = Store::open(path);
    for (const char* id : {"a", "b", "c"}) ASSERT_TRUE(store->save(sample_run(id, 2000, 60)));
    SQLite::Database database(path.string(), SQLite::OPEN_READWRITE);
    page_size = database.execAndGet("PRAGMA page_size").getInt64();
    // In the overflow pages of a long list, of three consecutive runs, one page in the middle.
    page = database
               .execAndGet(
                   "SELECT pageno FROM dbstat WHERE name = 'timelines' AND pagetype = "
                   "'overflow' ORDER BY pageno LIMIT 1 OFFSET (SELECT count(*) / 2 FROM "
                   "dbstat WHERE name = 'timelines' AND pagetype = 'overflow')")
               .getInt64();
  }
  ASSERT_GT(page, 1);
  std::string bytes = test::read_file(path);
  const auto begin = static_cast<std::size_t>((page - 1) * page_size);
  std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(begin), page_size, '\xff');
  test::write_file(path, bytes);
  auto store = Store::open(path);
  ASSERT_TRUE(store) << store.error().message();
  EXPECT_EQ(store->list()->size(), 3U);
  EXPECT_TRUE(store->load(1));
  EXPECT_TRUE(store->load(3));
  const auto broken = store->load(2);
  ASSERT_FALSE(broken);
  EXPECT_EQ(broken.error().fault, Fault::input);
  EXPECT_THAT(broken.error().message(),
              AllOf(StartsWith(path.string() + ": run 2: "), Not(HasSubstr("\n"))));
  EXPECT_TRUE(store->load(2, {.timeline = false, .steps = true, .launches = true}));
}

TEST(StoreSafety, AStoreWithoutATableIsDamaged) {
  const ScratchFolder folder;
  const fs::path path = folder / "s.sqlite";
  ASSERT_TRUE(Store::open(path)->save(some_measurement("a")));
  SQLite::Database(path.string(), SQLite::OPEN_READWRITE).exec("DROP TABLE launch_lists");
  const auto run = Store::open(path)->load(1);
  ASSERT_FALSE(run);
  EXPECT_EQ(run.error().message(),
            path.string() + ": run 1: is damaged: no such table: main.launch_lists");
  EXPECT_EQ(run.error().fault, Fault::input);
}

TEST(StoreSafety, AnyBrokenPageIsAnErrorOfOneLine) {
  const ScratchFolder folder;
  const fs::path path = folder / "s.sqlite";
  {
    auto store = Store::open(path);
    ASSERT_TRUE(store->save(some_measurement("a")));
    ASSERT_TRUE(store->save(some_prediction("b")));
  }
  const std::string whole = test::read_file(path);
  constexpr std::size_t kPage = 4096;
  std::size_t noticed = 0;
  for (std::size_t begin = 0; begin < whole.size(); begin += (test::kOneCase ? 8 : 1) * kPage)
    for (const char junk : {'\0', '\xff', 'x'}) {
      std::string bytes = whole;
      std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(begin + 100), kPage - 100, junk);
      test::write_file(path, bytes);
      const auto check = [&](const Error& error) {
        ++noticed;
        EXPECT_EQ(error.fault, Fault::input) << error.message();
        EXPECT_THAT(error.message(), AllOf(StartsWith(path.string() + ": "), Not(HasSubstr("\n"))));
      };
      auto store = Store::open(path);
      if (!store) {
        check(store.error());
        continue;
      }
      if (const auto runs = store->list(); !runs) check(runs.error());
      for (const std::int64_t row : {1, 2})
        if (const auto run = store->load(row); !run) check(run.error());
      if (const auto saved = store->save(some_prediction("c")); !saved) check(saved.error());
    }
  EXPECT_GT(noticed, test::kOneCase ? 2U : 20U);
}

}  // namespace
}  // namespace mfsdp
