// The store contains everything that shaped a result, and every microbatch of its step.
#include <SQLiteCpp/SQLiteCpp.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
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

std::int64_t number(const std::filesystem::path& path, const std::string& query) {
  SQLite::Database database(path.string(), SQLite::OPEN_READWRITE);
  return database.execAndGet(query).getInt64();
}

RunResult stored_and_loaded(const std::filesystem::path& path, const RunResult& run) {
  auto store = Store::open(path);
  EXPECT_TRUE(store);
  const auto row = store->save(run).value();

  return store->load(row).value();
}

PredictedRun prediction_with_everything() {
  PredictedRun run = sample_run();
  run.commit = "0123456789ab-dirty";
  run.facts = {{"cluster", "bf16_tflops", 989.5},
               {"cluster", "domain", std::int64_t{8}},
               {"cluster", "simple_only", false},
               {"simulation", "slow_ranks", std::string("3 x 1.1")}};
  run.plan.model_flops = 4.5e15;
  run.memory.reserve = Bytes(7);
  run.live_peak = Bytes(54);
  run.trust = {.trust_level = "datasheet only", .step_error = 0.147, .text = "as others publish"};
  run.ranks = RankReport{.ranks = 64,
                         .simulated = 4,
                         .slowest = 3,
                         .compute_mean = Nanos(5),
                         .compute_most = Nanos(6),
                         .waiting_mean = Nanos(1),
                         .variation = "rank 3 x 1.1"};
  run.classes = {{.role = "stage_0",
                  .ranks = 32,
                  .allocated = Bytes(60),
                  .peak = Bytes(50),
                  .host = Bytes(6),
                  .step = Nanos(9),
                  .compute = Nanos(4),
                  .exposed_communication = Nanos(2),
                  .idle = Nanos(3),
                  .sends = Bytes(12),
                  .fullest = true},
                 {.role = "stage_1",
                  .ranks = 32,
                  .allocated = Bytes(40),
                  .peak = Bytes(30),
                  .step = Nanos(9),
                  .compute = Nanos(5),
                  .exposed_communication = Nanos(3),
                  .idle = Nanos(1),
                  .sends = Bytes(34),
                  .busiest = true}};
  run.traffic.sends = Bytes(34);
  run.training = TrainingEstimate{.tokens = 1000, .seconds = 2.5, .gpu_hours = 0.25, .cost = 0.625};
  return run;
}

TEST(WholeRun, APredictionComesBackWithWhatShapedIt) {
  const ScratchFolder folder;
  const PredictedRun run = prediction_with_everything();
  const RunResult loaded = stored_and_loaded(folder / "s.sqlite", run);
  EXPECT_EQ(to_json(loaded), to_json(run));
  EXPECT_EQ(loaded.facts, run.facts);
  EXPECT_EQ(loaded.plan.model_flops, 4.5e15);
  EXPECT_EQ(loaded.predicted()->classes, run.classes);
  EXPECT_EQ(loaded.predicted()->live_peak, Bytes(54));
  ASSERT_TRUE(loaded.predicted()->training);
  EXPECT_EQ(loaded.predicted()->training->cost, 0.625);
  EXPECT_TRUE(loaded.absent.empty());
}

TEST(WholeRun, AnErrorOfTheStepThatIsNotKnownIsNull) {
  const ScratchFolder folder;
  PredictedRun run = prediction_with_everything();
  run.trust.step_error.reset();
  const RunResult loaded = stored_and_loaded(folder / "s.sqlite", run);
  EXPECT_FALSE(loaded.predicted()->trust.step_error);
  EXPECT_EQ(loaded.predicted()->trust.text, "as others publish");
  EXPECT_NE(to_json(loaded).find("\"step_error\": null"), std::string::npos);
}

TEST(WholeRun, FactsAreRowsOfAView) {
  const ScratchFolder folder;
  static_cast<void>(stored_and_loaded(folder / "s.sqlite", prediction_with_everything()));
  EXPECT_EQ(number(folder / "s.sqlite", "SELECT count(*) FROM facts WHERE topic = 'cluster'"), 3);
  EXPECT_EQ(number(folder / "s.sqlite", "SELECT value FROM facts WHERE name = 'domain'"), 8);
  EXPECT_EQ(number(folder / "s.sqlite", "SELECT slowest_rank FROM runs"), 3);
  EXPECT_EQ(number(folder / "s.sqlite", "SELECT micro_batch * microbatches FROM runs"), 3);
}

TEST(WholeRun, AMeasuredRunKeepsItsClassesAndAllAxes) {
  const ScratchFolder folder;
  const PredictedRun predicted = prediction_with_everything();
  MeasuredRun run;
  static_cast<RunFigures&>(run) = predicted;
  run.run_id = "stages";
  run.classes = predicted.classes;
  run.config.mesh = {};
  for (const Axis axis : {Axis::pp, Axis::dp_outer, Axis::dp_shard, Axis::cp, Axis::tp})
    run.config.mesh.resize(axis, 2 + static_cast<std::int64_t>(axis));
  const RunResult loaded = stored_and_loaded(folder / "s.sqlite", run);
  EXPECT_EQ(loaded.classes(), run.classes);
  EXPECT_EQ(loaded.config.mesh, run.config.mesh);
  EXPECT_EQ(loaded.traffic.sends, Bytes(34));
  EXPECT_THAT(to_json(loaded), testing::HasSubstr("\"host_bytes\": 6"));
}

TEST(WholeRun, WhatNobodyKnowsIsNullAndNeverZero) {
  const ScratchFolder folder;
  MeasuredRun run;
  run.run_id = "imported";
  run.engine = "megatron-lm";
  run.absent = FigureSet::all();
  run.absent.remove(ResultFigure::median_step_ns);
  run.time.median_step = Nanos(77);
  run.steps = {test::sample_step(1, Nanos(0), 2.0)};
  run.steps.front().timed = false;
  const RunResult loaded = stored_and_loaded(folder / "s.sqlite", run);
  EXPECT_EQ(loaded.absent, run.absent);
  EXPECT_EQ(to_json(loaded), to_json(run));
  ASSERT_EQ(loaded.measured()->steps.size(), 1U);
  EXPECT_FALSE(loaded.measured()->steps[0].timed);
  const auto path = folder / "s.sqlite";
  EXPECT_EQ(number(path, "SELECT median_step_ns FROM runs"), 77);
  for (const char* column : {"gpus", "parameters", "config", "strategy", "peak_bytes", "fits",
                             "mfu", "step_ns", "compute_ns", "all_gather_bytes", "model_flops"})
    EXPECT_EQ(number(path, std::string("SELECT count(*) FROM runs WHERE ") + column + " IS NULL"),
              1)
        << column;
  EXPECT_EQ(number(path, "SELECT count(*) FROM steps WHERE step_ns IS NULL"), 1);
  EXPECT_EQ(number(path, "SELECT count(*) FROM plan_summaries"), 0);
  const auto listed = Store::open(path)->list();
  EXPECT_FALSE(listed->front().peak);
  EXPECT_FALSE(listed->front().strategy);
  EXPECT_EQ(listed->front().median_step, Nanos(77));
}

// ---- microbatches ------------------------------------------------------------------------------

/// A first microbatch, `middle` ones, in the first of which compute is `late`, and a last one;
/// each of two ops in 1000 ns, in which memory rises and falls.
PredictedRun run_of_microbatches(std::int64_t middle, Nanos late) {
  PredictedRun run = sample_run("run-1", 0, 0);
  MemoryPoint point;
  const auto live = [&](Nanos at, std::int64_t bytes) {
    point.at = at;
    point.categories[0] = Bytes(bytes);
    run.memory_timeline.push_back(point);
  };
  const auto add = [&](const std::string& segment, std::int64_t instance, Nanos begin,
                       std::size_t first_op, Nanos delay = Nanos(0)) {
    run.timeline.push_back({.op = OpId(first_op),
                            .name = "gather",
                            .stream = "all_gather",
                            .kind = "all_gather",
                            .segment = segment,
                            .instance = instance,
                            .start = begin,
                            .end = begin + Nanos(100)});
    live(begin, 50);
    run.timeline.push_back({.op = OpId(first_op + 1),
                            .name = "gemm",
                            .stream = "compute",
                            .kind = "gemm",
                            .segment = segment,
                            .instance = instance,
                            .start = begin + Nanos(200) + delay,
                            .end = begin + Nanos(900) + delay});
    live(begin + Nanos(900) + delay, 10);
  };
  add("first", 0, Nanos(0), 0);
  for (std::int64_t i = 0; i < middle; ++i)
    add("middle", i, Nanos(1000) * (i + 1), 2, i == 0 ? late : Nanos(0));
  add("last", 0, Nanos(1000) * (middle + 1), 4);
  return run;
}

void expect_same_step(const RunResult& a, const RunResult& b) {
  ASSERT_EQ(a.timeline.size(), b.timeline.size());
  for (std::size_t i = 0; i < a.timeline.size(); ++i) {
    const OpTime& x = a.timeline[i];
    const OpTime& y = b.timeline[i];
    EXPECT_EQ(std::tie(x.op, x.name, x.stream, x.segment, x.instance, x.start, x.end),
              std::tie(y.op, y.name, y.stream, y.segment, y.instance, y.start, y.end));
  }
  const auto& points = a.predicted()->memory_timeline;
  const auto& others = b.predicted()->memory_timeline;
  ASSERT_EQ(points.size(), others.size());
  for (std::size_t i = 0; i < points.size(); ++i) {
    EXPECT_EQ(points[i].at, others[i].at);
    EXPECT_EQ(points[i].categories, others[i].categories);
  }
}

TEST(WholeRun, MicrobatchesThatRunAlikeAreStoredOnceAndShownAll) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  for (const Nanos late : {Nanos(0), Nanos(3)}) {
    PredictedRun run = run_of_microbatches(30, late);
    run.run_id = "late by " + std::to_string(late.value);
    expect_same_step(stored_and_loaded(path, run), run);
  }
  EXPECT_EQ(number(path, "SELECT count(*) FROM op_times WHERE run = 1"), 64);  // 2 * 32
  // first, one middle and last; with a late one that too.
  EXPECT_EQ(number(path, "SELECT count(*) FROM op_time_rows WHERE run = 1"), 6);
  EXPECT_EQ(number(path, "SELECT count(*) FROM op_time_rows WHERE run = 2"), 8);
  EXPECT_EQ(number(path, "SELECT count(*) FROM memory_timeline WHERE run = 1"), 64);
  EXPECT_LT(number(path, "SELECT count(*) FROM memory_changes WHERE run = 1"), 12);
  EXPECT_EQ(number(path,
                   "SELECT count(DISTINCT instance) FROM op_times WHERE run = 1 AND "
                   "segment = 'middle'"),
            30);
  EXPECT_EQ(number(path, "SELECT max(end_ns) FROM op_times WHERE run = 1"), 31'900);
  EXPECT_EQ(number(path, "SELECT count(DISTINCT point) FROM memory_timeline WHERE run = 1"), 64);
}

TEST(WholeRun, MicrobatchesThatDifferAreStoredEach) {
  const ScratchFolder folder;
  PredictedRun run = run_of_microbatches(6, Nanos(0));
  std::int64_t drift = 0;
  for (OpTime& op : run.timeline) {  // every op starts later than the pattern, each by more
    drift += 1;
    op.start += Nanos(drift);
    op.end += Nanos(2 * drift);
  }
  expect_same_step(stored_and_loaded(folder / "s.sqlite", run), run);
  EXPECT_EQ(number(folder / "s.sqlite", "SELECT count(*) FROM op_copies"), 0);
}

TEST(WholeRun, InstancesWhoseTimesNobodyKeptSaySo) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  PredictedRun run = run_of_microbatches(2, Nanos(0));
  for (OpTime& op : run.timeline)
    if (op.segment == "last") op.start += Nanos(5000), op.end += Nanos(5000);
  run.omitted = {
      {.segment = "middle", .first = 2, .count = 5, .begin = Nanos(3000), .period = Nanos(1000)}};
  const RunResult loaded = stored_and_loaded(path, run);
  EXPECT_EQ(loaded.omitted, run.omitted);
  EXPECT_EQ(loaded.timeline.size(), run.timeline.size());
  EXPECT_EQ(number(path, "SELECT count(*) FROM op_times WHERE omitted = 1"), 10);  // 5 * 2
  EXPECT_EQ(number(path, "SELECT max(end_ns) FROM op_times WHERE omitted = 1"), 7900);
  EXPECT_EQ(number(path, "SELECT count(DISTINCT instance) FROM op_times WHERE segment = 'middle'"),
            7);
}

// ---- the guide ---------------------------------------------------------------------------------

std::vector<std::string> queries_of(const std::string& text) {
  std::vector<std::string> queries;
  const std::string begin = "```sql\n";
  for (std::size_t at = text.find(begin); at != std::string::npos; at = text.find(begin, at)) {
    at += begin.size();
    queries.push_back(text.substr(at, text.find("```", at) - at));
  }
  return queries;
}

TEST(WholeRun, EveryQueryOfTheGuideFindsRows) {
  const ScratchFolder folder;
  const auto path = folder / "s.sqlite";
  PredictedRun predicted = prediction_with_everything();
  predicted.memory.fits = true;
  static_cast<void>(stored_and_loaded(path, predicted));
  MeasuredRun measured = measured_run("b");
  measured.facts = {{"recipe", "learning_rate", 3e-4}};
  measured.steps = {test::sample_step(1, Nanos(5), 2.0)};
  static_cast<void>(stored_and_loaded(path, measured));
  const auto queries = queries_of(
      test::read_file(std::filesystem::path(MFSDP_SOURCE_DIR) / "docs" / "reference" / "store.md"));
  EXPECT_GE(queries.size(), 7U);
  SQLite::Database database(path.string());
  for (const std::string& query : queries) {
    SQLite::Statement statement(database, query);
    EXPECT_TRUE(statement.executeStep()) << query;
  }
}

TEST(WholeRun, TheGuideNamesEveryColumnThatItPromises) {
  const ScratchFolder folder;
  static_cast<void>(Store::open(folder / "s.sqlite"));
  SQLite::Database database((folder / "s.sqlite").string());
  const std::string guide =
      test::read_file(std::filesystem::path(MFSDP_SOURCE_DIR) / "docs" / "reference" / "store.md");
  for (const char* view : {"runs", "steps", "op_times", "memory_at_peak", "memory_timeline",
                           "facts", "evaluations", "launches"}) {
    EXPECT_NE(guide.find(std::string("`") + view + "`"), std::string::npos) << view;
    if (std::string(view) == "runs") continue;  // shortened there
    SQLite::Statement columns(database, "SELECT name FROM pragma_table_info(?)");
    columns.bind(1, view);
    while (columns.executeStep())
      EXPECT_NE(guide.find("`" + columns.getColumn(0).getString() + "`"), std::string::npos)
          << view << "." << columns.getColumn(0).getString();
  }
}

}  // namespace
}  // namespace mfsdp
