#include "reports/budget/ci_reports.hpp"

#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/sample_run.hpp"

namespace mfsdp {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

/// Of each verdict one limit, in a file whose name needs every escape.
BudgetReport every_verdict() {
  const auto budget = parse_budget(
      "model = 'llama3_8b'\n"
      "[memory]\n"
      "allocated_bytes = 100\n"
      "peak_bytes = 55\n"
      "[plan]\n"
      "ops = { expected = 3600 }\n"
      "[time]\n"
      "mfu = 0.5\n"
      "step_ns = { worse_by = '2 %' }\n",
      "50%,a:b.toml");
  const RunResult run(test::sample_run());
  BudgetReport report = check_budget(*budget, {&run, 1});
  for (BudgetRow& row : report.rows)
    if (row.limit.measure.key == "time.mfu") {
      row.verdict = Verdict::inconclusive;
      row.why = "too noisy\nto tell: 5 %";
      row.samples = 7;
      row.range = {.low = 0.25, .high = 0.5, .known = true};
    }
  return report;
}

TEST(GithubAnnotations, EscapeWhatWorkflowCommandsAreMadeOf) {
  EXPECT_THAT(
      github_annotations(every_verdict()),
      ElementsAre(
          "::error file=50%25%2Ca%3Ab.toml,line=3,title=mfsdp budget%3A allocated::"
          "memory.allocated_bytes is 120, allowed at most 100: fail: 20 B (20.0 %25) over",
          "::notice file=50%25%2Ca%3Ab.toml,line=6,title=mfsdp budget%3A ops::"
          "plan.ops is 3500, allowed 3600: improved: 100 (2.8 %25) under",
          testing::AllOf(testing::StartsWith("::warning file=50%25%2Ca%3Ab.toml,line=8,title="),
                         HasSubstr("inconclusive: too noisy\\nto tell: 5 %25")),
          testing::AllOf(testing::StartsWith("::error "), HasSubstr(",line=9,"),
                         HasSubstr("not comparable: no baseline was named"))));
}

TEST(GithubAnnotations, FileNamesArePrintable) {
  const auto budget = parse_budget("[memory]\npeak_bytes = 1\n", "a\x1b[2J\xff,b.toml");
  const RunResult run(test::sample_run());
  const auto lines = github_annotations(check_budget(*budget, {&run, 1}));
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_TRUE(lines[0].starts_with("::error file=a\\x1b[2J?%2Cb.toml,line=2,")) << lines[0];
}

TEST(JunitXml, HasACaseForEachLimit) {
  const BudgetReport report = every_verdict();
  const std::string xml = junit_xml(report);
  EXPECT_THAT(xml, HasSubstr("tests=\"5\" failures=\"2\" errors=\"0\" skipped=\"1\""));
  EXPECT_THAT(xml, HasSubstr("<failure type=\"fail\" message=\"memory.allocated_bytes is 120"));
  BudgetReport strict = report;
  strict.policy = {.strict = true, .allow_incomparable = true};
  EXPECT_THAT(junit_xml(strict), HasSubstr("failures=\"2\" errors=\"0\" skipped=\"1\""));
  BudgetReport hostile = report;
  hostile.file = "<a>&\"\x01.toml";
  EXPECT_THAT(junit_xml(hostile), HasSubstr("budget &lt;a&gt;&amp;&quot;\\x01.toml"));
}

TEST(SarifJson, HasALocationForWhatDidNotPass) {
  const json sarif = json::parse(sarif_json(every_verdict(), "0.1.0"));
  EXPECT_EQ(sarif["version"], "2.1.0");
  const json& run = sarif["runs"][0];
  EXPECT_EQ(run["tool"]["driver"]["name"], "mfsdp-report");
  ASSERT_EQ(run["results"].size(), 4U);
  std::vector<std::string> known;
  for (const json& rule : run["tool"]["driver"]["rules"]) known.push_back(rule["id"]);
  std::vector<std::string> levels;
  for (const json& result : run["results"]) {
    EXPECT_THAT(known, testing::Contains(result["ruleId"].get<std::string>()));
    levels.push_back(result["level"]);
    EXPECT_FALSE(result["partialFingerprints"].empty());
  }
  EXPECT_THAT(levels, ElementsAre("error", "note", "warning", "error"));
  const json& place = run["results"][0]["locations"][0]["physicalLocation"];
  EXPECT_EQ(place["artifactLocation"]["uri"], "50%25%2Ca%3Ab.toml");
  EXPECT_EQ(place["region"]["startLine"], 3);
}

TEST(BmfJson, HasMeasuresWithTheirRange) {
  const json bmf = json::parse(bmf_json(every_verdict(), "bench"));
  EXPECT_EQ(bmf["bench"]["memory.allocated_bytes"], json({{"value", 120}}));
  EXPECT_EQ(bmf["bench"]["time.mfu"]["lower_value"], 0.25);
  EXPECT_EQ(bmf["bench"]["time.mfu"]["upper_value"], 0.5);
  EXPECT_EQ(bmf["bench"].size(), 5U);
}

TEST(ActionBenchmarkJson, HasWhatShouldBeSmall) {
  const json list = json::parse(action_benchmark_json(every_verdict(), "bench"));
  ASSERT_EQ(list.size(), 4U);  // all but MFU
  EXPECT_EQ(list[0]["name"], "bench/memory.allocated_bytes");
  EXPECT_EQ(list[0]["unit"], "bytes");
  EXPECT_EQ(list[0]["value"], 120);
}

}  // namespace
}  // namespace mfsdp
