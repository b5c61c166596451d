#include "reports/store/schema.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "reports/record/result_json.hpp"
#include "reports/store/store.hpp"
#include "tests/support/sample_run.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::measured_run;
using test::sample_run;
using test::ScratchFolder;

/// The released entries and one more.
std::vector<std::string_view> with_next_version(std::string_view sql) {
  std::vector<std::string_view> list(store_migrations().begin(), store_migrations().end());
  list.push_back(sql);
  return list;
}

std::int64_t scalar(const std::filesystem::path& path, const std::string& query) {
  SQLite::Database database(path.string(), SQLite::OPEN_READWRITE);
  return database.execAndGet(query).getInt64();
}

void execute(const std::filesystem::path& path, const std::string& sql) {
  SQLite::Database database(path.string(), SQLite::OPEN_READWRITE | SQLite::OPEN_CREATE);
  database.exec(sql);
}

TEST(Schema, ANewStoreHasTheNewestVersionAndOurMark) {
  const ScratchFolder folder;
  ASSERT_TRUE(Store::open(folder / "s.sqlite"));
  const auto newest = static_cast<std::int64_t>(store_migrations().size());
  EXPECT_EQ(scalar(folder / "s.sqlite", "PRAGMA user_version"), newest);
  EXPECT_EQ(scalar(folder / "s.sqlite", "PRAGMA application_id"), 0x4d465344);
  EXPECT_EQ(scalar(folder / "s.sqlite", "SELECT count(*) FROM schema_versions"), newest);
}

TEST(Schema, EveryTableIsStrict) {
  const ScratchFolder folder;
  ASSERT_TRUE(Store::open(folder / "s.sqlite"));
  constexpr auto loose =
      "SELECT count(*) FROM pragma_table_list WHERE type = 'table' AND "
      "schema = 'main' AND name NOT LIKE 'sqlite_%' AND NOT strict";
  EXPECT_EQ(scalar(folder / "s.sqlite", loose), 0);
  constexpr auto tables = "SELECT count(*) FROM pragma_table_list WHERE type = 'table' AND strict";
  EXPECT_EQ(scalar(folder / "s.sqlite", tables), 11);
}

TEST(Schema, AnEmptyDatabaseIsVersionZeroAndIsMigrated) {
  const ScratchFolder folder;
  execute(folder / "s.sqlite", "VACUUM");  // an SQLite file with no tables
  ASSERT_TRUE(std::filesystem::exists(folder / "s.sqlite"));
  auto store = Store::open(folder / "s.sqlite");
  ASSERT_TRUE(store) << store.error().message();
  EXPECT_TRUE(store->save(sample_run()));
}

TEST(Schema, OneMoreEntryTakesAStoreToTheNextVersion) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  const PredictedRun run = sample_run();
  ASSERT_TRUE(Store::open(path)->save(run));
  const auto list = with_next_version("ALTER TABLE runs ADD COLUMN note TEXT DEFAULT 'none'");
  {
    auto store = Store::open(path, {.migrations = list});
    ASSERT_TRUE(store) << store.error().message();
    EXPECT_EQ(store->version(), static_cast<std::int64_t>(list.size()));
    EXPECT_EQ(to_json(*store->load(1)), to_json(run));  // the older run is still there
  }
  EXPECT_EQ(scalar(path, "PRAGMA user_version"), static_cast<std::int64_t>(list.size()));
  EXPECT_EQ(scalar(path, "SELECT count(*) FROM runs WHERE note = 'none'"), 1);
  EXPECT_EQ(scalar(path, "SELECT count(*) FROM schema_versions"),
            static_cast<std::int64_t>(list.size()));
}

TEST(Schema, TimelinesOfVersionOneAreKept) {
  const ScratchFolder folder;
  const auto path = folder / "old.sqlite";
  const PredictedRun run = sample_run("a", 40, 50);
  ASSERT_TRUE(Store::open(folder / "new.sqlite")->save(run));
  ASSERT_TRUE(Store::open(path, {.migrations = store_migrations().first(1)}));
  // What version 1 would have written, position by position.
  execute(path, "ATTACH '" + (folder / "new.sqlite").string() + "' AS new;" +
                    R"sql(
      ALTER TABLE new.runs DROP COLUMN status;  -- of version 3
      ALTER TABLE new.runs DROP COLUMN resumed_step;  -- of version 5
      ALTER TABLE new.runs DROP COLUMN resumed_run_id;
      INSERT INTO runs SELECT * FROM new.runs;
      INSERT INTO plan_summaries SELECT * FROM new.plan_summaries;
      INSERT INTO pools SELECT * FROM new.pools;
      INSERT INTO memory_categories SELECT * FROM new.memory_categories;
      INSERT INTO exposed_units SELECT * FROM new.exposed_units;
      INSERT INTO names SELECT * FROM new.names ORDER BY id DESC;
      INSERT INTO op_time_rows SELECT run, position, op, n.id, s.id, k.id, g.id, instance, start_ns,
                                      end_ns
        FROM new.op_times AS o
        JOIN names AS n ON n.text = o.name JOIN names AS s ON s.text = o.stream
        JOIN names AS k ON k.text = o.kind JOIN names AS g ON g.text = o.segment;
      INSERT INTO memory_changes SELECT run, point, n.id, at_ns, bytes
        FROM new.memory_timeline JOIN names AS n ON n.text = category;)sql");
  EXPECT_EQ(scalar(path, "SELECT count(*) FROM op_times"), 40);
  auto store = Store::open(path);
  ASSERT_TRUE(store) << store.error().message();
  const auto loaded = store->load(1);
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(to_json(*loaded), to_json(run));
  ASSERT_EQ(loaded->timeline.size(), run.timeline.size());
  for (std::size_t i = 0; i < run.timeline.size(); ++i) {
    EXPECT_EQ(loaded->timeline[i].name, run.timeline[i].name);
    EXPECT_EQ(loaded->timeline[i].end, run.timeline[i].end);
  }
  const std::vector<MemoryPoint>& points = loaded->predicted()->memory_timeline;
  ASSERT_EQ(points.size(), run.memory_timeline.size());
  for (std::size_t i = 0; i < run.memory_timeline.size(); ++i) {
    EXPECT_EQ(points[i].at, run.memory_timeline[i].at);
    EXPECT_EQ(points[i].categories, run.memory_timeline[i].categories);
  }
}

TEST(Schema, RunsOfVersionsTwoAndThreeAreKeptWithoutLaunches) {
  for (const std::size_t version : {2U, 3U}) {
    const ScratchFolder folder;
    const auto path = folder / "old.sqlite";
    MeasuredRun run = measured_run("a", 8);
    ASSERT_FALSE(run.launches.empty());
    ASSERT_TRUE(Store::open(folder / "new.sqlite")->save(run));
    ASSERT_TRUE(Store::open(path, {.migrations = store_migrations().first(version)}));
    execute(path, "ATTACH '" + (folder / "new.sqlite").string() + "' AS new;" +
                      (version == 2 ? "ALTER TABLE new.runs DROP COLUMN status;" : "") + R"sql(
      ALTER TABLE new.runs DROP COLUMN resumed_step;  -- of version 5
      ALTER TABLE new.runs DROP COLUMN resumed_run_id;
      INSERT INTO runs SELECT * FROM new.runs;
      INSERT INTO plan_summaries SELECT * FROM new.plan_summaries;
      INSERT INTO pools SELECT * FROM new.pools;
      INSERT INTO memory_categories SELECT * FROM new.memory_categories;
      INSERT INTO exposed_units SELECT * FROM new.exposed_units;
      INSERT INTO names SELECT * FROM new.names;
      INSERT INTO timelines SELECT * FROM new.timelines;)sql");
    auto store = Store::open(path);
    ASSERT_TRUE(store) << store.error().message();
    const auto loaded = store->load(1);
    ASSERT_TRUE(loaded) << loaded.error().message();
    EXPECT_EQ(to_json(*loaded), to_json(run));
    EXPECT_EQ(loaded->timeline.size(), 8U);
    EXPECT_TRUE(loaded->measured()->launches.empty());
    run.run_id = "b";
    EXPECT_EQ(store->load(*store->save(run))->measured()->launches, run.launches);
  }
}

TEST(Schema, AFailedMigrationChangesNothing) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  ASSERT_TRUE(Store::open(path)->save(sample_run()));
  const auto list = with_next_version("ALTER TABLE runs ADD COLUMN note TEXT; SELECT broken");
  const auto store = Store::open(path, {.migrations = list});
  ASSERT_FALSE(store);
  EXPECT_EQ(scalar(path, "PRAGMA user_version"),
            static_cast<std::int64_t>(store_migrations().size()));
  EXPECT_EQ(scalar(path, "SELECT count(*) FROM pragma_table_info('runs') WHERE name = 'note'"), 0);
  EXPECT_EQ(Store::open(path)->list()->size(), 1U);
}

TEST(Schema, AStoreFromTheFutureIsRefusedUntouched) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  {
    ASSERT_TRUE(Store::open(path)->save(sample_run()));
  }
  execute(path, "PRAGMA user_version = 7");
  const std::string before = test::read_file(path);
  const auto store = Store::open(path);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().message(),
            path.string() + ": is a store of version 7, this program knows versions up to " +
                std::to_string(store_migrations().size()) + ": use a newer mfsdp or another file");
  EXPECT_EQ(store.error().fault, Fault::input);
  EXPECT_EQ(test::read_file(path), before);
}

TEST(Schema, AnotherProgramsDatabaseIsRefusedUntouched) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  execute(path, "CREATE TABLE runs (id INTEGER)");
  const std::string before = test::read_file(path);
  const auto store = Store::open(path);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().message(),
            path.string() + ": is an SQLite database but not an mfsdp store");
  EXPECT_EQ(store.error().fault, Fault::input);
  EXPECT_EQ(test::read_file(path), before);
}

TEST(Schema, DeletingARunDeletesItsRows) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  {
    auto store = Store::open(path);
    ASSERT_TRUE(store->save(sample_run("a")));
    ASSERT_TRUE(store->save(measured_run("b")));
    ASSERT_TRUE(store->save(sample_run("c")));
    ASSERT_TRUE(store->save(measured_run("d")));
  }
  constexpr auto ops = "SELECT count(*) FROM op_times";
  const std::int64_t all = scalar(path, ops);
  execute(path, "PRAGMA foreign_keys = ON; DELETE FROM runs WHERE run_id < 'c'");
  EXPECT_GT(all, 0);
  EXPECT_EQ(scalar(path, ops), all / 2);
  EXPECT_EQ(scalar(path, "SELECT count(*) FROM memory_timeline WHERE run = 1"), 0);
  EXPECT_EQ(scalar(path, "SELECT count(*) FROM launches WHERE run = 2"), 0);
  EXPECT_GT(scalar(path, "SELECT count(*) FROM launches WHERE run = 4"), 0);
  EXPECT_EQ(
      scalar(path, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check != 'ok'"), 0);
}

TEST(Schema, ViewsShowTextsAndSums) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  {
    auto store = Store::open(path);
    ASSERT_TRUE(store->save(sample_run("a", 6)));
    ASSERT_TRUE(store->save(measured_run("b", 0)));
  }
  // Ops 0, 2, 4 run on compute, each for 150,000 ns.
  EXPECT_EQ(scalar(path, "SELECT sum(end_ns - start_ns) FROM op_times WHERE stream = 'compute'"),
            450'000);
  EXPECT_EQ(scalar(path, "SELECT sum(bytes) FROM memory_categories WHERE run = 1"), 55);
  EXPECT_EQ(scalar(path, "SELECT config ->> 'global_batch' FROM runs WHERE id = 1"),
            192);  // 1 * 3 * 64
  EXPECT_EQ(scalar(path, "SELECT count(*) FROM memory_timeline WHERE category IS NULL"), 0);
  // The host waits from 300 to 370 ns on rank 0, and as long on rank 2.
  EXPECT_EQ(scalar(path, "SELECT sum(end_ns - begin_ns) FROM launches WHERE stream IS NULL"), 140);
}

}  // namespace
}  // namespace mfsdp
