#include "reports/store/store.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "reports/record/result_json.hpp"
#include "reports/store/copy_runs.hpp"
#include "tests/support/sample_run.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::measured_run;
using test::sample_run;
using test::ScratchFolder;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Store open_store(const std::filesystem::path& path) {
  auto store = Store::open(path);
  EXPECT_TRUE(store) << store.error().message();
  return std::move(store.value());
}

std::size_t run_count(const std::filesystem::path& path) { return open_store(path).list()->size(); }

/// The message of a failed open, checked to be one line that begins with the file.
Error open_error(const std::filesystem::path& path) {
  auto store = Store::open(path);
  EXPECT_FALSE(store);
  if (store) return {};
  EXPECT_THAT(store.error().message(), AllOf(StartsWith(path.string()), Not(HasSubstr("\n"))));
  return store.error();
}

StepResult a_step(std::int64_t number) {
  return {.step = number,
          .duration = Nanos(4 + number),
          .loss = 5.5 / static_cast<double>(number),
          .grad_norm = 0.1,
          .tokens = 48,
          .learning_rate = 1e-3};
}

void expect_same_timeline(const RunResult& a, const RunResult& b) {
  ASSERT_EQ(a.source(), b.source());
  ASSERT_EQ(a.timeline.size(), b.timeline.size());
  for (std::size_t i = 0; i < a.timeline.size(); ++i) {
    const OpTime& x = a.timeline[i];
    const OpTime& y = b.timeline[i];
    EXPECT_EQ(std::tie(x.op, x.name, x.stream, x.kind, x.segment, x.instance, x.start, x.end),
              std::tie(y.op, y.name, y.stream, y.kind, y.segment, y.instance, y.start, y.end));
  }
  if (a.measured() != nullptr) {
    EXPECT_EQ(a.measured()->launches, b.measured()->launches);
    return;
  }
  const std::vector<MemoryPoint>& points = a.predicted()->memory_timeline;
  const std::vector<MemoryPoint>& others = b.predicted()->memory_timeline;
  ASSERT_EQ(points.size(), others.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(points[i].at, others[i].at);
    EXPECT_EQ(points[i].categories, others[i].categories);
  }
}

/// The result's JSON shows every field but the timelines, the plan's configuration included.
void expect_comes_back(Store& store, const RunResult& run) {
  const auto id = store.save(run);
  ASSERT_TRUE(id) << id.error().message();
  const auto loaded = store.load(*id);
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(to_json(*loaded), to_json(run));
  EXPECT_EQ(loaded->config, run.config);
  expect_same_timeline(*loaded, run);
}

TEST(Store, LoadsWhatWasSaved) {
  const ScratchFolder folder;
  MeasuredRun run = measured_run("run-1", 40);
  run.steps = {a_step(1), a_step(2)};
  run.steps.front().grad_norm.reset();
  run.steps.front().skipped = true;
  run.evaluations = {{.step = 2, .loss = 5.0, .tokens = 96}};
  run.resumed = {.step = 7, .run_id = "run-0"};
  run.status = RunStatus::interrupted;
  auto store = open_store(folder / "s.sqlite");
  expect_comes_back(store, run);
  expect_comes_back(store, sample_run("run-2", 40, 60));
  PredictedRun cached = sample_run("run-3", 40, 60);
  cached.memory.cached = {
      .reserved = Bytes(150), .device = Bytes(170), .retries = 3, .certain = false};
  cached.time.host = {.issue = Nanos(40), .bound = Nanos(5)};
  expect_comes_back(store, cached);
  cached.run_id = "run-4";
  cached.memory.cached->fits_certain = true;
  cached.memory.cached->errors = {
      .allocated = 0.001, .reserved = 0.01, .device = 0.02, .source = "runs"};
  expect_comes_back(store, cached);
  cached.routing = RoutingReport{.routing = "zipf:1", .slowest_rank = 3, .slowest_block = 2};
  cached.routing->room = {.rows = 320,
                          .needed = 500,
                          .holds = false,
                          .least_factor = {5, 4},
                          .least_allocated = Bytes(170),
                          .least_fits = true};
  cached.run_id = "run-5";
  cached.memory.cached = {.reserved = Bytes(150)};
  expect_comes_back(store, cached);
}

TEST(Store, ARunOfNoKnownSourceIsAnError) {
  const ScratchFolder folder;
  auto store = open_store(folder / "s.sqlite");
  ASSERT_TRUE(store.save(sample_run()));
  SQLite::Database((folder / "s.sqlite").string(), SQLite::OPEN_READWRITE)
      .exec("UPDATE run_rows SET source = 'dreamt'");
  const auto loaded = store.load(1);
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message(),
              HasSubstr("runs.source: expected simulated or measured, found \"dreamt\""));
}

TEST(Store, ARunThatGoesOnIsThereAsFarAsItHasCome) {
  const ScratchFolder folder;
  auto store = open_store(folder / "s.sqlite");
  MeasuredRun run = measured_run("run-1", 0);
  run.status = RunStatus::running;
  const std::int64_t row = store.save(run).value();
  const std::int64_t other = store.save(sample_run("run-2")).value();
  EXPECT_EQ(store.append(row, "run-1", {.steps = {a_step(1), a_step(2)}, .evaluations = {}}), true);
  EXPECT_EQ(store.append(row, "run-1", {.steps = {a_step(3)}, .evaluations = {{3, 5.0, 96}}}),
            true);
  run.steps = {a_step(1), a_step(2), a_step(3)};
  run.evaluations = {{.step = 3, .loss = 5.0, .tokens = 96}};
  EXPECT_EQ(to_json(*open_store(folder / "s.sqlite").load(row)), to_json(run));

  MeasuredRun end = measured_run("run-1", 40);
  const auto finished = store.finish(row, end);
  ASSERT_TRUE(finished) << finished.error().message();
  end.steps = run.steps;
  end.evaluations = run.evaluations;
  EXPECT_EQ(to_json(*store.load(row)), to_json(end));
  expect_same_timeline(*store.load(row), end);
  EXPECT_EQ(to_json(*store.load(other)), to_json(sample_run("run-2")));
}

TEST(Store, ARunThatIsGoneCannotBeFinished) {
  const ScratchFolder folder;
  auto store = open_store(folder / "s.sqlite");
  EXPECT_EQ(store.finish(7, sample_run()), false);
  EXPECT_TRUE(store.list()->empty());
}

/// SQLite gives the row of a removed run to the next one.
TEST(Store, ARemovedRunsStepsDoNotBecomeAnothers) {
  const ScratchFolder folder;
  auto store = open_store(folder / "s.sqlite");
  const std::int64_t row = store.save(measured_run("run-1", 0)).value();
  ASSERT_EQ(store.remove({&row, 1}), 1);
  const MeasuredRun other = measured_run("run-2", 0);
  ASSERT_EQ(store.save(other), row);
  EXPECT_EQ(store.append(row, "run-1", {.steps = {a_step(9)}, .evaluations = {}}), false);
  EXPECT_EQ(store.finish(row, measured_run("run-1", 40)), false);
  EXPECT_EQ(to_json(*store.load(row)), to_json(other));
}

TEST(Store, KeepsMemoryPointsThatChangeNothingAndStartFromZero) {
  const ScratchFolder folder;
  PredictedRun run = sample_run("run-1", 0, 0);
  MemoryPoint point{.at = Nanos(-5), .categories = {}};
  run.memory_timeline.push_back(point);  // nothing live
  point.at = Nanos(10);
  point.categories.at(3) = Bytes(7);
  run.memory_timeline.push_back(point);
  run.memory_timeline.push_back(point);  // the same again, at the same time
  point.categories.fill(Bytes());
  run.memory_timeline.push_back(point);
  auto store = open_store(folder / "s.sqlite");
  expect_same_timeline(*store.load(*store.save(run)), run);
}

TEST(Store, ListsRunsInTheOrderOfSaving) {
  const ScratchFolder folder;
  auto store = open_store(folder / "s.sqlite");
  ASSERT_TRUE(store.save(sample_run("b")));
  ASSERT_TRUE(store.save(sample_run("a")));
  const auto runs = store.list();
  ASSERT_TRUE(runs);
  ASSERT_EQ(runs->size(), 2U);
  EXPECT_EQ(runs->at(0).run_id, "b");
  EXPECT_EQ(runs->at(1).run_id, "a");
  EXPECT_EQ(runs->at(1).name, sample_run().name);
  EXPECT_EQ(runs->at(1).median_step, Nanos(1000));
  EXPECT_EQ(runs->at(1).fits, false);
}

TEST(Store, RefusesTheSameRunTwiceAndKeepsTheFirst) {
  const ScratchFolder folder;
  auto store = open_store(folder / "s.sqlite");
  ASSERT_TRUE(store.save(sample_run("a")));
  const auto again = store.save(sample_run("a"));
  ASSERT_FALSE(again);
  EXPECT_THAT(again.error().message(), EndsWith("s.sqlite: run a is stored already"));
  EXPECT_TRUE(store.save(sample_run("b")));
  EXPECT_EQ(store.list()->size(), 2U);
}

TEST(Store, AFailedSaveLeavesNoRow) {
  const ScratchFolder folder;
  auto store = open_store(folder / "s.sqlite");
  PredictedRun run = sample_run("a");
  run.config.microbatches = std::numeric_limits<std::int64_t>::max();  // global batch overflows
  EXPECT_FALSE(store.save(run));
  EXPECT_TRUE(store.list()->empty());
  EXPECT_TRUE(store.save(sample_run("a")));
}

TEST(Store, SavesSeveralRunsInOrder) {
  const ScratchFolder folder;
  auto store = open_store(folder / "s.sqlite");
  const std::vector<RunResult> runs{sample_run("b"), sample_run("a", 40, 60)};
  EXPECT_EQ(store.save_all({}).value(), std::vector<std::int64_t>{});
  const auto rows = store.save_all(runs);
  ASSERT_TRUE(rows) << rows.error().message();
  ASSERT_EQ(rows->size(), 2U);
  for (std::size_t i = 0; i < runs.size(); ++i) {
    const auto loaded = store.load(rows->at(i));
    EXPECT_EQ(to_json(*loaded), to_json(runs[i]));
    expect_same_timeline(*loaded, runs[i]);
  }
}

TEST(Store, SavesAllRunsOrNone) {
  const ScratchFolder folder;
  auto store = open_store(folder / "s.sqlite");
  ASSERT_TRUE(store.save(sample_run("c")));
  // The first one's op names are new to the store, and go with it.
  const std::vector<RunResult> runs{sample_run("a", 400, 60), sample_run("c")};
  const auto rows = store.save_all(runs);
  ASSERT_FALSE(rows);
  EXPECT_THAT(rows.error().message(), EndsWith("s.sqlite: run c is stored already"));
  EXPECT_EQ(store.list()->size(), 1U);
  const auto again = store.save(runs[0]);
  ASSERT_TRUE(again) << again.error().message();
  expect_same_timeline(*store.load(*again), runs[0]);
}

TEST(Store, NumbersThatAreNoneComeBackAsNone) {
  const ScratchFolder folder;
  auto store = open_store(folder / "s.sqlite");
  MeasuredRun run = measured_run("a");
  run.time.mfu = std::numeric_limits<double>::quiet_NaN();
  run.steps.emplace_back().loss = std::numeric_limits<double>::quiet_NaN();
  const auto loaded = store.load(*store.save(run));
  ASSERT_TRUE(loaded);
  EXPECT_TRUE(std::isnan(loaded->time.mfu));
  EXPECT_FALSE(loaded->measured()->steps.at(0).loss.has_value());
}

TEST(Store, AnUnknownRunIsAnError) {
  const ScratchFolder folder;
  auto store = open_store(folder / "s.sqlite");
  const auto loaded = store.load(42);
  ASSERT_FALSE(loaded);
  EXPECT_THAT(loaded.error().message(), EndsWith("s.sqlite: no run 42"));
}

TEST(Store, ClosedStoreIsOneFile) {
  const ScratchFolder folder;
  ASSERT_TRUE(open_store(folder / "s.sqlite").save(sample_run()));
  EXPECT_EQ(folder.file_count(), 1U);  // no -wal, no -shm: the file can be copied
}

TEST(Store, SpecialNamesAreFiles) {
  const ScratchFolder folder;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  for (const char* name : {":memory:", "file:x?mode=memory", "it's 100% öl.sqlite"}) {
    EXPECT_TRUE(open_store(name).save(sample_run()));
    EXPECT_EQ(run_count(name), 1U) << name;
    EXPECT_TRUE(std::filesystem::exists(name)) << name;
  }
  std::filesystem::current_path(before);
}

TEST(Store, ConcurrentProcessesLoseNothing) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";  // does not exist: they race to create it, too
  constexpr int processes = 8;
  constexpr int runs = 20;
  std::vector<pid_t> children;
  for (int p = 0; p < processes; ++p)
    children.push_back(test::start_child([&] {
      for (int i = 0; i < runs; ++i) {
        auto store = Store::open(path);
        if (!store) {
          ADD_FAILURE() << store.error().message();  // a child's words; its code is what counts
          return 1;
        }
        const std::string id = std::to_string(p) + "." + std::to_string(i);
        if (const auto saved = store->save(sample_run(id, 50, 50)); !saved) {
          ADD_FAILURE() << saved.error().message();
          return 2;
        }
      }
      return 0;
    }));
  for (const pid_t child : children) EXPECT_EQ(test::wait_for(child), 0);
  auto store = open_store(path);
  const auto stored = store.list();
  ASSERT_TRUE(stored);
  EXPECT_EQ(stored->size(), 160U);  // 8 * 20
  for (const StoredRun& run : *stored)
    EXPECT_EQ(store.load(run.id)->timeline.size(), 50U) << run.run_id;
}

TEST(Store, AWriterThatIsKilledLeavesAWholeStore) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  ASSERT_TRUE(open_store(path).save(sample_run("first")));
  const pid_t child = test::start_child([&] {
    auto store = Store::open(path);
    if (!store || !store->save(sample_run("second"))) return 1;
    std::raise(SIGKILL);  // without closing: the write-ahead log remains
    return 0;
  });
  EXPECT_EQ(test::wait_for(child), 1000 + SIGKILL);
  EXPECT_EQ(run_count(path), 2U);
}

TEST(Store, WaitsNoLongerThanAsked) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  ASSERT_TRUE(open_store(path).save(sample_run("first")));
  // The other process holds the write lock until the pipe to it is closed.
  std::array<int, 2> to_child{};
  std::array<int, 2> to_parent{};
  ASSERT_EQ(::pipe(to_child.data()), 0);
  ASSERT_EQ(::pipe(to_parent.data()), 0);
  char byte = 0;
  const pid_t child = test::start_child([&] {
    ::close(to_child[1]);
    SQLite::Database database(path.string(), SQLite::OPEN_READWRITE);
    database.exec("BEGIN IMMEDIATE");
    if (::write(to_parent[1], "x", 1) != 1) return 1;
    return ::read(to_child[0], &byte, 1) == 0 ? 0 : 2;
  });
  ASSERT_EQ(::read(to_parent[0], &byte, 1), 1);
  auto store = Store::open(path, {.patience = std::chrono::milliseconds(20)});
  ASSERT_TRUE(store) << "reading needs no write lock";
  const auto saved = store->save(sample_run("second"));
  ::close(to_child[1]);
  EXPECT_EQ(test::wait_for(child), 0);
  ASSERT_FALSE(saved);
  EXPECT_EQ(saved.error().fault, Fault::environment);
  EXPECT_THAT(saved.error().message(),
              EndsWith("s.sqlite: locked by another process for more than 20 ms"));
  EXPECT_TRUE(store->save(sample_run("second")));
}

TEST(StoreErrors, AFullDiskLeavesNothingHalfWritten) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  ASSERT_TRUE(open_store(path).save(sample_run("first")));
  const auto limit = std::filesystem::file_size(path) + 100'000;
  const pid_t child = test::start_child([&] {
    auto store = Store::open(path);
    if (!store) return 1;
    test::limit_file_size(limit);
    const auto saved = store->save(sample_run("too large", 20'000, 20'000));
    if (saved) return 2;
    if (saved.error().fault != Fault::environment) return 3;
    if (saved.error().message() != path.string() + ": disk full or file size limit reached")
      return 4;
    return store->save(sample_run("small", 5, 5)) ? 0 : 5;  // still usable
  });
  EXPECT_EQ(test::wait_for(child), 0);
  auto store = open_store(path);
  const auto runs = store.list();
  ASSERT_TRUE(runs);
  ASSERT_EQ(runs->size(), 2U);
  EXPECT_EQ(runs->at(0).run_id, "first");
  EXPECT_EQ(runs->at(1).run_id, "small");
  EXPECT_EQ(store.load(runs->at(1).id)->timeline.size(), 5U);
}

TEST(StoreErrors, CreatingOnAFullDiskSaysSo) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  const pid_t child = test::start_child([&] {
    test::limit_file_size(5000);
    const auto store = Store::open(path);
    if (store) return 1;
    return store.error().fault == Fault::environment && store.error().what.starts_with("disk full")
               ? 0
               : 2;
  });
  EXPECT_EQ(test::wait_for(child), 0);
  EXPECT_EQ(run_count(path), 0U);  // the file can be used once there is space
}

TEST(StoreErrors, FilesThatAreNotStores) {
  const ScratchFolder folder;
  test::write_file(folder / "text", std::string(5000, 'x'));
  const Error text = open_error(folder / "text");
  EXPECT_EQ(text.what, "is not an mfsdp store (not an SQLite file)");
  EXPECT_EQ(text.fault, Fault::input);
  EXPECT_EQ(test::read_file(folder / "text"), std::string(5000, 'x'));

  const Error directory = open_error(folder.path());
  EXPECT_EQ(directory.what, "is a directory, expected an mfsdp store");
  EXPECT_EQ(directory.fault, Fault::input);

  EXPECT_EQ(open_error("/dev/null").what, "is not a regular file, cannot be a store");
  EXPECT_EQ(Store::open("").error().message(), "store: expected a path, found an empty one");
}

TEST(StoreErrors, AMissingFolderIsNamed) {
  const ScratchFolder folder;
  const Error error = open_error(folder / "no/s.sqlite");
  EXPECT_EQ(error.fault, Fault::environment);
  EXPECT_EQ(error.what, "cannot open the store: folder " + (folder / "no").string() +
                            ": No such file or directory");
}

TEST(StoreErrors, ReadersDoNotCreate) {
  const ScratchFolder folder;
  const auto store = Store::open(folder / "s.sqlite", {.create = false});
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().what, "no such store");
  EXPECT_EQ(store.error().fault, Fault::input);
  EXPECT_EQ(folder.file_count(), 0U);
}

TEST(StoreErrors, PermissionsAreFaultsOfTheEnvironment) {
  namespace fs = std::filesystem;
  const ScratchFolder folder;
  ASSERT_TRUE(open_store(folder / "s.sqlite").save(sample_run()));
  fs::permissions(folder / "s.sqlite", fs::perms(0444));
  fs::create_directory(folder / "closed");
  fs::permissions(folder / "closed", fs::perms(0555));
  fs::permissions(folder.path(), fs::perms(0777));
  const auto what = [](const fs::path& path) {
    const auto store = Store::open(path);
    return store || store.error().fault != Fault::environment ? "" : store.error().what;
  };
  const pid_t child = test::start_child([&] {
    test::become_ordinary_user();
    if (what(folder / "s.sqlite") != "is read-only, cannot store results") return 1;
    if (!what(folder / "closed/s.sqlite").ends_with("closed: Permission denied")) return 2;
    return 0;
  });
  EXPECT_EQ(test::wait_for(child), 0);
  fs::permissions(folder / "closed", fs::perms(0777));
}

TEST(FillStore, AStoreThatSomebodyElseMakesMeanwhileKeepsItsRuns) {
  const test::ScratchFolder folder;
  const std::filesystem::path path = folder / "s.sqlite";
  const std::vector<RunResult> runs{sample_run("ours")};
  bool made = false;
  const auto copied = fill_store(path, [&](Store& store) {
    if (!made) {
      EXPECT_TRUE(Store::open(path)->save(sample_run("theirs")));
    }
    made = true;
    return save_new(store, runs);
  });
  ASSERT_TRUE(copied) << copied.error().message();
  EXPECT_EQ(copied->rows, std::vector<std::int64_t>{2});
  EXPECT_EQ(Store::open(path)->list()->size(), 2U);
  EXPECT_EQ(folder.file_count(), 1U);
}

/// Once it is old: until then a process of another machine may still write it.
TEST(FillStore, WhatAKilledProcessLeftGoes) {
  namespace fs = std::filesystem;
  const test::ScratchFolder folder;
  const pid_t child = test::start_child([&] {
    const auto filled = fill_store(folder / "s.sqlite", [](Store&) -> Result<Copied> {
      static_cast<void>(std::raise(SIGKILL));
      return Copied{};
    });
    return filled ? 1 : 2;
  });
  EXPECT_NE(test::wait_for(child), 0);
  const std::size_t left = folder.file_count();
  EXPECT_GT(left, 0U);
  const auto fill = [&](const char* name) {
    const auto filled = fill_store(folder / name, [](Store& store) {
      return save_new(store, std::vector<RunResult>{sample_run("a")});
    });
    return filled && fs::remove(folder / name);
  };
  EXPECT_TRUE(fill("s.sqlite"));
  EXPECT_EQ(folder.file_count(), left);
  for (const auto& entry : fs::directory_iterator(folder.path()))
    fs::last_write_time(entry, fs::file_time_type::clock::now() - std::chrono::hours(24));
  test::write_file(folder / "s.sqlite.new.txt", "somebody's");
  EXPECT_TRUE(fill("s.sqlite"));
  EXPECT_EQ(folder.file_count(), 1U);
}

/// As a script that merges stores repeatedly sees it: first while it goes on, then complete.
TEST(SaveNew, ARunThatWentOnIsBroughtToWhereItStands) {
  const test::ScratchFolder folder;
  auto store = open_store(folder / "s.sqlite");
  MeasuredRun run = test::measured_run("a", 8);
  run.status = RunStatus::running;
  run.steps = {test::sample_step(1, Nanos(70), 2.5), test::sample_step(2, Nanos(60), 2.25)};
  const auto copied = [&] { return *save_new(store, std::vector<RunResult>{run}); };
  EXPECT_EQ(copied().rows, std::vector<std::int64_t>{1});
  EXPECT_EQ(copied().there_before, std::vector<std::string>{"a"});
  run.steps.push_back(test::sample_step(3, Nanos(65), 2.125));
  EXPECT_EQ(copied().rows, std::vector<std::int64_t>{1});  // killed later, perhaps
  run.steps.push_back(test::sample_step(4, Nanos(65), 2));
  run.evaluations = {{.step = 4, .loss = 5.0, .tokens = 96}};
  run.status = RunStatus::complete;
  EXPECT_EQ(copied().rows, std::vector<std::int64_t>{1});
  EXPECT_EQ(to_json(*store.load(1)), to_json(RunResult(run)));
  run.steps.pop_back();
  run.status = RunStatus::running;
  EXPECT_EQ(copied().there_before, std::vector<std::string>{"a"});
  EXPECT_EQ(store.load(1)->measured()->steps.size(), 4U);
}

TEST(Store, ReadingAnEmptyFileLeavesItEmpty) {
  const test::ScratchFolder folder;
  const std::filesystem::path file = folder / "empty";
  std::ofstream(file).close();
  const auto store = Store::open(file, {.create = false, .for_reading = true});
  ASSERT_FALSE(store);
  EXPECT_NE(store.error().message().find("is empty, expected an mfsdp store"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(file), 0U);
}

}  // namespace
}  // namespace mfsdp
