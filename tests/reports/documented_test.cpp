// docs/reference/formats.md names every key of a result, docs/reference/store.md every column of
// the views for users.
#include "tests/support/documented.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "reports/record/result.hpp"
#include "reports/store/store.hpp"
#include "tests/support/sample_run.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

/// All keys but those of `facts`, whose names are of other files, and of results' `model` and
/// `config`, which are plans'.
void add_keys(const Json& node, std::set<std::string>& keys) {
  if (node.is_array())
    for (const Json& item : node) add_keys(item, keys);
  if (!node.is_object()) return;
  for (const auto& [key, value] : node.items()) {
    keys.insert(key);
    if (key != "facts") add_keys(value, keys);
  }
}

TEST(Documented, KeysOfResults) {
  PredictedRun predicted = test::sample_run();
  predicted.trust = {.trust_level = "datasheet only", .step_error = 0.1, .text = "published"};
  predicted.ranks.emplace().ranks = 2;
  predicted.training.emplace().cost = 1;
  predicted.routing.emplace().slowest_block = 1;
  predicted.routing->room.emplace();
  predicted.classes.resize(1);
  predicted.classes[0].fullest = predicted.classes[0].busiest = true;
  predicted.traffic.sends = Bytes(1);
  predicted.live_peak = Bytes(1);
  predicted.exposed_units = {
      {.unit = "head", .exposed = Nanos(1), .mostly = Awaited::gradient_norm}};
  predicted.other_engines.resize(2);
  predicted.other_engines.back().reason = "cannot be predicted with this";
  MeasuredRun measured = test::measured_run();
  measured.resumed = ResumedFrom{.step = 1, .run_id = "r"};
  StepResult step = test::sample_step(1, Nanos(1), 1);
  step.grad_norm = step.learning_rate = step.loss_scale = 1;
  step.tokens = 1;
  step.skipped = true;
  measured.steps = {step};
  measured.evaluations = {{.step = 1, .loss = 1, .tokens = 1}};
  std::set<std::string> keys;
  add_keys(Json::parse(to_json(RunResult(predicted))), keys);
  add_keys(Json::parse(to_json(RunResult(measured))), keys);
  EXPECT_GT(keys.size(), 120U);
  std::set<std::string> named = test::documented("reference/formats.md", "Result");
  named.merge(test::documented("reference/formats.md", "Plan"));
  for (const std::string& key : keys)
    EXPECT_TRUE(named.contains(key)) << key << " has no place in the tables of results' keys";
}

TEST(Documented, ColumnsOfTheStore) {
  const test::ScratchFolder folder;
  const std::string path = folder / "s.sqlite";
  ASSERT_TRUE(Store::open(path));
  SQLite::Database database(path);
  const std::set<std::string> named = test::documented("reference/store.md");
  for (const char* view :
       {"runs", "facts", "steps", "evaluations", "op_times", "memory_timeline", "memory_at_peak",
        "exposed_units", "pools", "plan_summaries", "launches", "marks"}) {
    EXPECT_TRUE(named.contains(view)) << view;
    SQLite::Statement columns(database, std::string("PRAGMA table_info(") + view + ")");
    std::size_t count = 0;
    for (; columns.executeStep(); ++count) {
      const std::string column = columns.getColumn(1);
      EXPECT_TRUE(named.contains(column)) << view << "." << column;
    }
    EXPECT_GT(count, 2U) << view;
  }
}

}  // namespace
}  // namespace mfsdp
