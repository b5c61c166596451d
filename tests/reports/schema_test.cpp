#include "reports/store/schema.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>
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
  EXPECT_EQ(scalar(folder / "s.sqlite", tables), 20);
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
  const auto list = with_next_version("ALTER TABLE run_rows ADD COLUMN note TEXT DEFAULT 'none'");
  {
    auto store = Store::open(path, {.migrations = list});
    ASSERT_TRUE(store) << store.error().message();
    EXPECT_EQ(store->version(), static_cast<std::int64_t>(list.size()));
    EXPECT_EQ(to_json(*store->load(1)), to_json(run));  // the older run is still there
  }
  EXPECT_EQ(scalar(path, "PRAGMA user_version"), static_cast<std::int64_t>(list.size()));
  EXPECT_EQ(scalar(path, "SELECT count(*) FROM run_rows WHERE note = 'none'"), 1);
  EXPECT_EQ(scalar(path, "SELECT count(*) FROM schema_versions"),
            static_cast<std::int64_t>(list.size()));
}

/// The SQL that turns a store of this program, attached as `new`, into one of an earlier version.
std::string rows_of_earlier_versions(std::size_t version) {
  constexpr std::string_view before_3 =
      "run_id, name, tool, version, created_unix_ns, source, plan_hash, model_name, parameters, "
      "model, config, gpu, gpus, nodes, gpus_per_node, network, engine, calibration, "
      "cost_model_version, capacity_bytes, allocated_bytes, peak_bytes, peak_op, fits, "
      "headroom_bytes, runtime_source, step_ns, compute_ns, communication_ns, "
      "exposed_communication_ns, idle_ns, contention_ns, overlap_fraction, "
      "tokens_per_second_per_gpu, tflops_per_gpu, mfu, all_gather_bytes, reduce_scatter_bytes, "
      "all_reduce_bytes";
  std::string runs = std::string(before_3);
  std::string steps = "run, position, step, step_ns, loss, grad_norm";
  if (version >= 3) {
    runs += ", status";
    steps += ", tokens, learning_rate";
  }
  if (version >= 5) runs += ", resumed_step, resumed_run_id";
  if (version >= 6) steps += ", skipped";
  if (version >= 7) runs += ", git_commit, reserve_bytes, facts";
  if (version >= 8) runs += ", median_step_ns";
  std::string now = runs;
  if (version == 7) now.replace(now.find(" step_ns"), 8, " median_step_ns");  // its step was that
  std::string sql = std::string("INSERT INTO ") + (version < 7 ? "runs" : "run_rows") + " (id, " +
                    runs + ") SELECT id, " + now + " FROM new.run_rows;";
  sql += "INSERT INTO steps (" + steps + ") SELECT " + steps + " FROM new.steps;";
  sql += R"sql(
      INSERT INTO plan_summaries SELECT run, units, groups, ops, events, waits, buffers,
          collectives, segments, max_live_full_weights, max_live_full_gradients, allocator,
          padding_bytes)sql" +
         std::string(version < 7 ? "" : ", model_flops") +
         R"sql( FROM new.plan_summaries;
      INSERT INTO pools SELECT * FROM new.pools;
      INSERT INTO memory_categories SELECT * FROM new.memory_categories;
      INSERT INTO exposed_units SELECT * FROM new.exposed_units;
      INSERT INTO names SELECT * FROM new.names ORDER BY id DESC;)sql";
  if (version >= 2) sql += "INSERT INTO timelines SELECT run, ops, memory FROM new.timelines;";
  if (version >= 3) sql += "INSERT INTO evaluations SELECT * FROM new.evaluations;";
  if (version >= 4) sql += "INSERT INTO launch_lists SELECT * FROM new.launch_lists;";
  if (version >= 7)
    for (const char* table : {"predictions", "op_copies", "memory_copies"})
      sql += fmt::format("INSERT INTO {0} SELECT * FROM new.{0};", table);
  if (version == 1)
    sql += R"sql(
      INSERT INTO op_time_rows SELECT run, row_number() OVER (ORDER BY start_ns) - 1, op, n.id,
                                      s.id, k.id, g.id, instance, start_ns, end_ns
        FROM new.op_times AS o
        JOIN names AS n ON n.text = o.name JOIN names AS s ON s.text = o.stream
        JOIN names AS k ON k.text = o.kind JOIN names AS g ON g.text = o.segment;
      INSERT INTO memory_changes SELECT run, point, n.id, at_ns, bytes
        FROM new.memory_timeline JOIN names AS n ON n.text = category;)sql";
  return sql;
}

/// A store of that version with the run.
void write_earlier(const std::filesystem::path& path, std::size_t version, const RunResult& run) {
  const auto now = path.parent_path() / "now.sqlite";
  std::filesystem::remove(now);
  ASSERT_TRUE(Store::open(now)->save(run));
  ASSERT_TRUE(Store::open(path, {.migrations = store_migrations().first(version)}));
  execute(path, "ATTACH '" + now.string() + "' AS new;" + rows_of_earlier_versions(version));
}

void expect_same_timelines(const RunResult& loaded, const RunResult& run) {
  ASSERT_EQ(loaded.timeline.size(), run.timeline.size());
  for (std::size_t i = 0; i < run.timeline.size(); ++i) {
    EXPECT_EQ(loaded.timeline[i].name, run.timeline[i].name);
    EXPECT_EQ(loaded.timeline[i].end, run.timeline[i].end);
  }
  if (run.predicted() == nullptr) return;
  const std::vector<MemoryPoint>& points = loaded.predicted()->memory_timeline;
  const std::vector<MemoryPoint>& expected = run.predicted()->memory_timeline;
  ASSERT_EQ(points.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(points[i].at, expected[i].at);
    EXPECT_EQ(points[i].categories, expected[i].categories);
  }
}

TEST(Schema, RunsOfEveryEarlierVersionAreKept) {
  for (std::size_t version = 1; version < store_migrations().size(); ++version) {
    SCOPED_TRACE(version);
    const ScratchFolder folder;
    const RunResult run = sample_run("a", 40, 50);
    write_earlier(folder / "old.sqlite", version, run);
    auto store = Store::open(folder / "old.sqlite");
    ASSERT_TRUE(store) << store.error().message();
    const auto loaded = store->load(1);
    ASSERT_TRUE(loaded) << loaded.error().message();
    EXPECT_EQ(to_json(*loaded), to_json(run));
    EXPECT_TRUE(loaded->absent.empty());
    expect_same_timelines(*loaded, run);
    EXPECT_EQ(scalar(folder / "old.sqlite", "SELECT count(*) FROM pragma_foreign_key_check"), 0);
    // And what this version knows goes in beside it.
    EXPECT_TRUE(store->save(sample_run("b")));
    EXPECT_TRUE(store->mark(1, "baseline"));
  }
}

TEST(Schema, MeasuredRunsOfEveryEarlierVersionAreKept) {
  for (std::size_t version = 1; version < store_migrations().size(); ++version) {
    SCOPED_TRACE(version);
    const ScratchFolder folder;
    MeasuredRun run = measured_run("a", 8);
    run.steps = {test::sample_step(1, Nanos(70), 2.5), test::sample_step(2, Nanos(60), 2.25)};
    if (version == 7) run.time.median_step = Nanos(1100);  // before, the last step alone was stored
    write_earlier(folder / "old.sqlite", version, run);
    auto store = Store::open(folder / "old.sqlite");
    ASSERT_TRUE(store) << store.error().message();
    const auto loaded = store->load(1);
    ASSERT_TRUE(loaded) << loaded.error().message();
    EXPECT_EQ(to_json(*loaded), to_json(run));
    expect_same_timelines(*loaded, run);
    EXPECT_EQ(loaded->measured()->launches.empty(), version < 4);
    run.run_id = "b";
    EXPECT_EQ(store->load(*store->save(run))->measured()->launches, run.launches);
  }
}

/// The allocator's reservation was stored as allocated memory.
TEST(Schema, ImportedRunsOfVersion11KeepTheirMemoryByItsName) {
  const ScratchFolder folder;
  MeasuredRun run = measured_run("a", 8);
  run.memory.allocated = Bytes(200);
  run.memory.peak = Bytes(150);
  run.memory.runtime_source = "what the caching allocator reserved, no context";
  write_earlier(folder / "old.sqlite", 11, run);
  const auto loaded = Store::open(folder / "old.sqlite")->load(1);
  ASSERT_TRUE(loaded) << loaded.error().message();
  EXPECT_EQ(loaded->memory.allocated, Bytes(150));
  EXPECT_EQ(loaded->memory.cached, CachedMemory{.reserved = Bytes(200)});
}

TEST(Schema, AFailedMigrationChangesNothing) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  ASSERT_TRUE(Store::open(path)->save(sample_run()));
  const auto list = with_next_version("ALTER TABLE run_rows ADD COLUMN note TEXT; SELECT broken");
  const auto store = Store::open(path, {.migrations = list});
  ASSERT_FALSE(store);
  EXPECT_EQ(scalar(path, "PRAGMA user_version"),
            static_cast<std::int64_t>(store_migrations().size()));
  EXPECT_EQ(scalar(path, "SELECT count(*) FROM pragma_table_info('run_rows') WHERE name = 'note'"),
            0);
  EXPECT_EQ(Store::open(path)->list()->size(), 1U);
}

TEST(Schema, AStoreFromTheFutureIsRefusedUntouched) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  {
    ASSERT_TRUE(Store::open(path)->save(sample_run()));
  }
  execute(path, "PRAGMA user_version = 1000");
  const std::string before = test::read_file(path);
  const auto store = Store::open(path);
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().message(),
            path.string() + ": is a store of version 1000, this program knows versions up to " +
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
  execute(path, "PRAGMA foreign_keys = ON; DELETE FROM run_rows WHERE run_id < 'c'");
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
