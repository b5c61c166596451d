#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "reports/budget/budget.hpp"
#include "reports/record/result_json.hpp"
#include "tests/support/sample_run.hpp"

namespace mfsdp {
namespace {

using test::sample_run;

Budget exact_budget(const PredictedRun& run) {
  const auto budget = parse_budget(budget_text(run), "b.toml");
  EXPECT_TRUE(budget) << (budget ? "" : budget.error().message());
  return *budget;
}

TEST(CheckBudget, ARunKeepsItsOwnBudgetAndNothingLarger) {
  const PredictedRun run = sample_run();
  const Budget exact = exact_budget(run);
  // 2 of memory, a limit for each category, 2 of time, 4 of traffic, 3 of the plan.
  ASSERT_EQ(exact.limits.size(), 2 + Names<Category>::values.size() + 2 + 4 + 3);
  const BudgetReport kept = check_budget(exact, run);
  EXPECT_TRUE(kept.passes());
  EXPECT_THAT(kept.notes, testing::IsEmpty());
  EXPECT_THAT(exceeded_lines(kept), testing::IsEmpty());
  for (const BudgetRow& row : kept.rows) {
    EXPECT_EQ(row.outcome, BudgetOutcome::within) << row.limit.key;
    EXPECT_EQ(row.value, row.limit.most) << row.limit.key;
  }
  for (std::size_t i = 0; i < exact.limits.size(); ++i) {
    Budget tight = exact;
    --tight.limits[i].most;
    const BudgetReport report = check_budget(tight, run);
    EXPECT_FALSE(report.passes()) << tight.limits[i].key;
    EXPECT_EQ(exceeded_lines(report),
              (std::vector<std::string>{
                  "b.toml:" + std::to_string(tight.limits[i].line) + ": " + tight.limits[i].key +
                  " is " + std::to_string(exact.limits[i].most) + ", 1 over the limit of " +
                  std::to_string(tight.limits[i].most)}));
  }
}

TEST(CheckBudget, OneByteOneNanosecondOneWaitTooMany) {
  const PredictedRun run = sample_run();
  const Budget exact = exact_budget(run);
  const auto lines = [&](auto worsen) {
    PredictedRun worse = run;
    worsen(worse);
    return exceeded_lines(check_budget(exact, worse));
  };
  using testing::ElementsAre;
  using testing::EndsWith;
  EXPECT_THAT(lines([](PredictedRun& r) { r.memory.allocated += Bytes(1); }),
              ElementsAre(EndsWith(": memory.allocated_bytes is 121, 1 over the limit of 120")));
  EXPECT_THAT(lines([](PredictedRun& r) { r.time.step += Nanos(1); }),
              ElementsAre(EndsWith(": time.step_ns is 1001, 1 over the limit of 1000")));
  EXPECT_THAT(lines([](PredictedRun& r) { r.plan.waits += 1; }),
              ElementsAre(EndsWith(": plan.waits is 81, 1 over the limit of 80")));
  // The total of 11 + 22 + 33 bytes goes with its part.
  EXPECT_THAT(lines([](PredictedRun& r) { r.traffic.all_gather += Bytes(1); }),
              ElementsAre(EndsWith(": traffic.all_gather_bytes is 12, 1 over the limit of 11"),
                          EndsWith(": traffic.total_bytes is 67, 1 over the limit of 66")));
  EXPECT_THAT(lines([](PredictedRun& r) { r.memory.categories.at(6) += Bytes(1); }),
              ElementsAre(EndsWith("activation_bytes is 8, 1 over the limit of 7")));
  EXPECT_THAT(lines([](PredictedRun& r) { r.plan.waits -= 1; }), testing::IsEmpty());
}

TEST(CheckBudget, AnotherCostModelLeavesBytesAndCounts) {
  const PredictedRun run = sample_run();
  const Budget exact = exact_budget(run);
  PredictedRun worse = run;
  worse.cost_model_version = "2";
  worse.time.step += Nanos(500);
  worse.memory.peak += Bytes(1);
  worse.plan.ops += 1;
  const BudgetReport report = check_budget(exact, worse);
  EXPECT_EQ(report.notes,
            (std::vector<std::string>{"line 4: cost model 1, now 2: times are not comparable"}));
  for (const BudgetRow& row : report.rows) {
    const bool time = row.limit.key.starts_with("time.");
    const bool worse_one = row.limit.key == "memory.peak_bytes" || row.limit.key == "plan.ops";
    EXPECT_EQ(row.outcome, time        ? BudgetOutcome::not_comparable
                           : worse_one ? BudgetOutcome::exceeded
                                       : BudgetOutcome::within)
        << row.limit.key;
  }
}

TEST(CheckBudget, WithoutACostModelVersionTimesAlwaysCompare) {
  PredictedRun run = sample_run();
  Budget budget = exact_budget(run);
  budget.cost_model_version.reset();
  run.cost_model_version = "2";
  run.time.step += Nanos(1);
  EXPECT_FALSE(check_budget(budget, run).passes());
}

TEST(CheckBudget, AnotherPlanIsANote) {
  PredictedRun run = sample_run();
  const Budget budget = exact_budget(run);
  run.plan_hash = "f00";
  const BudgetReport report = check_budget(budget, run);
  EXPECT_TRUE(report.passes());
  EXPECT_EQ(report.notes,
            (std::vector<std::string>{
                "line 5: plan 0123456789abcdef0123456789abcdef, now f00: the plan has changed"}));
}

/// Three limits, of which one is exceeded and one is not comparable.
BudgetReport sample_report() {
  const auto budget = parse_budget(
      "cost_model_version = '0'\n[memory]\nallocated_bytes = 100\npeak_bytes = 55\n[time]\n"
      "step_ns = 1000\n",
      "ci/b.toml");
  return check_budget(*budget, sample_run());
}

TEST(RenderBudget, TextIsATable) {
  EXPECT_EQ(render_budget_text(sample_report()),
            "Budget ci/b.toml: 1 of 3 limits exceeded, 1 not comparable\n"
            "  line 1: cost model 0, now 1: times are not comparable\n"
            "  line  limit                   at most       is\n"
            "     3  memory.allocated_bytes      100      120  exceeded by 20\n"
            "     4  memory.peak_bytes            55       55  within\n"
            "     6  time.step_ns               1000     1000  not comparable\n");
}

TEST(RenderBudget, MarkdownIsATable) {
  EXPECT_EQ(render_budget_markdown(sample_report()),
            "### Budget `ci/b.toml`: 1 of 3 limits exceeded, 1 not comparable\n"
            "\n"
            "- line 1: cost model 0, now 1: times are not comparable\n"
            "\n"
            "| line | limit | at most | is | outcome |\n"
            "| ---: | --- | ---: | ---: | --- |\n"
            "| 3 | memory.allocated_bytes | 100 | 120 | **exceeded by 20** |\n"
            "| 4 | memory.peak_bytes | 55 | 55 | within |\n"
            "| 6 | time.step_ns | 1000 | 1000 | not comparable |\n");
}

TEST(RenderBudget, JsonIsAKeyOfTheResult) {
  const BudgetReport report = sample_report();
  for (const std::string& result : {to_json(sample_run()), to_json_line(sample_run()) + "\n"}) {
    const std::string text = add_budget(result, report);
    // What stood there stands there still, byte for byte, before the new key.
    const std::string before = result.substr(0, result.find_last_not_of("\n}") + 1);
    EXPECT_EQ(text.substr(0, before.size()), before);
    EXPECT_EQ(std::ranges::count(text, '\n') == 1, std::ranges::count(result, '\n') == 1);
    const auto budget = nlohmann::json::parse(text).at("budget");
    EXPECT_EQ(budget["file"], "ci/b.toml");
    EXPECT_EQ(budget["passes"], false);
    EXPECT_EQ(budget["notes"].size(), 1u);
    EXPECT_EQ(budget["limits"][0], nlohmann::json::parse(
                                       R"({"key": "memory.allocated_bytes", "line": 3,
                                           "limit": 100, "value": 120, "outcome": "exceeded"})"));
    EXPECT_EQ(budget["limits"][2]["outcome"], "not_comparable");
  }
}

}  // namespace
}  // namespace mfsdp
