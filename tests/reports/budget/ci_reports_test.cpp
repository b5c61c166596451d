#include "reports/budget/ci_reports.hpp"

#include <gmock/gmock.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/sample_run.hpp"

namespace mfsdp {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

/// One limit for each verdict, in a file whose name needs every escape.
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
          "Allocated memory 120 B, limit 100: 20 B (20.0 %25) over (memory.allocated_bytes is "
          "120, allowed at most 100)",
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
  EXPECT_THAT(xml,
              HasSubstr("<failure type=\"fail\" message=\"Allocated memory 120 B, limit 100: 20 B "
                        "(20.0 %) over (memory.allocated_bytes is 120, allowed at most 100)\""));
  BudgetReport strict = report;
  strict.policy = {.strict = true, .allow_incomparable = true};
  EXPECT_THAT(junit_xml(strict), HasSubstr("failures=\"2\" errors=\"0\" skipped=\"1\""));
  BudgetReport hostile = report;
  hostile.file = "<a>&\"\x01.toml";
  EXPECT_THAT(junit_xml(hostile), HasSubstr("budget &lt;a&gt;&amp;&quot;\\x01.toml"));
}

struct XmlElement {
  std::string name;
  std::string parent;
  std::set<std::string> attributes;
};

/// The elements of XML as junit_xml() writes it; ends the test where tags do not nest.
std::vector<XmlElement> elements_of(const std::string& xml) {
  static const std::regex tag(R"re(<(/?)([a-z-]+)((?: [a-z]+="[^"<>]*")*)(/?)>)re");
  static const std::regex attribute(R"re( ([a-z]+)=)re");
  std::vector<XmlElement> elements;
  std::vector<std::string> open{""};
  for (std::sregex_iterator at(xml.begin(), xml.end(), tag), end; at != end; ++at) {
    const std::string name = (*at)[2];
    if ((*at)[1].length() > 0) {
      EXPECT_EQ(open.back(), name);
      open.pop_back();
      continue;
    }
    XmlElement element{.name = name, .parent = open.back(), .attributes = {}};
    const std::string attributes = (*at)[3];
    for (std::sregex_iterator each(attributes.begin(), attributes.end(), attribute); each != end;
         ++each)
      EXPECT_TRUE(element.attributes.insert((*each)[1]).second) << "twice";
    elements.push_back(std::move(element));
    if ((*at)[4].length() == 0) open.push_back(name);
  }
  EXPECT_EQ(open.size(), 1U);
  // No tag is left that was not understood.
  EXPECT_EQ(static_cast<std::size_t>(std::ranges::count(xml, '<')),
            static_cast<std::size_t>(std::distance(
                std::sregex_iterator(xml.begin(), xml.end(), tag), std::sregex_iterator())) +
                1);  // the declaration's
  return elements;
}

/// The rules of junit-10.xsd for the elements that are used.
TEST(JunitXml, IsOfTheSchema) {
  struct Rule {
    std::string parent;
    std::set<std::string> required;
    std::set<std::string> allowed;
  };
  const std::map<std::string, Rule> rules{
      {"testsuites", {"", {}, {"name", "time", "tests", "failures", "errors"}}},
      {"testsuite",
       {"testsuites",
        {"name", "tests", "failures", "errors"},
        {"name", "tests", "failures", "errors", "skipped", "file", "time", "timestamp"}}},
      {"testcase", {"testsuite", {"name"}, {"name", "classname", "time", "group"}}},
      {"failure", {"testcase", {}, {"type", "message"}}},
      {"skipped", {"testcase", {}, {"type", "message"}}},
      {"system-out", {"testcase", {}, {}}}};
  BudgetReport report = every_verdict();
  report.file = "<a>&\"\x01.toml";
  std::set<std::string> seen;
  for (const XmlElement& element : elements_of(junit_xml(report))) {
    ASSERT_TRUE(rules.contains(element.name)) << element.name;
    const Rule& rule = rules.at(element.name);
    seen.insert(element.name);
    EXPECT_EQ(element.parent, rule.parent) << element.name;
    EXPECT_TRUE(std::ranges::includes(element.attributes, rule.required)) << element.name;
    EXPECT_TRUE(std::ranges::includes(rule.allowed, element.attributes)) << element.name;
  }
  EXPECT_EQ(seen.size(), rules.size());
}

/// The properties of sarif-schema-2.1.0.json that are used; it allows no others.
TEST(SarifJson, IsOfTheSchema) {
  using Keys = std::set<std::string>;
  const auto keys = [](const json& object) {
    Keys found;
    for (const auto& [key, value] : object.items()) found.insert(key);
    return found;
  };
  const json sarif = json::parse(sarif_json(every_verdict(), "0.1.0"));
  const Keys levels{"none", "note", "warning", "error"};
  EXPECT_EQ(keys(sarif), (Keys{"$schema", "version", "runs"}));
  const json& run = sarif["runs"].at(0);
  EXPECT_EQ(keys(run), (Keys{"tool", "results"}));
  EXPECT_EQ(keys(run["tool"]), Keys{"driver"});
  EXPECT_EQ(keys(run["tool"]["driver"]), (Keys{"name", "version", "rules"}));
  Keys ids;
  for (const json& rule : run["tool"]["driver"]["rules"]) {
    EXPECT_EQ(keys(rule), (Keys{"id", "shortDescription", "defaultConfiguration"}));
    EXPECT_EQ(keys(rule["shortDescription"]), Keys{"text"});
    EXPECT_TRUE(levels.contains(rule["defaultConfiguration"]["level"].get<std::string>()));
    EXPECT_TRUE(ids.insert(rule["id"]).second) << "rules are unique";
  }
  for (const json& result : run["results"]) {
    EXPECT_EQ(keys(result),
              (Keys{"ruleId", "level", "message", "locations", "partialFingerprints"}));
    EXPECT_TRUE(ids.contains(result["ruleId"].get<std::string>()));
    EXPECT_TRUE(levels.contains(result["level"].get<std::string>()));
    EXPECT_TRUE(result["message"]["text"].is_string());
    const json& place = result["locations"].at(0)["physicalLocation"];
    EXPECT_EQ(place["artifactLocation"]["uri"].get<std::string>().find_first_of(" \"<>\\^`{|}"),
              std::string::npos);
    EXPECT_GE(place["region"]["startLine"].get<int>(), 1);
    for (const auto& [key, value] : result["partialFingerprints"].items())
      EXPECT_TRUE(value.is_string());
  }
}

/// Values are numbers, and names no longer than Bencher takes.
TEST(BmfJson, IsOfTheSchema) {
  const json bmf = json::parse(bmf_json(every_verdict(), std::string(5000, 'x')));
  for (const auto& [benchmark, measured] : bmf.items()) {
    EXPECT_LE(benchmark.size(), 1024U);
    for (const auto& [measure, metric] : measured.items()) {
      EXPECT_LE(measure.size(), 64U);
      EXPECT_TRUE(metric.contains("value"));
      for (const auto& [key, value] : metric.items()) EXPECT_TRUE(value.is_number()) << key;
    }
  }
  for (const Measure& measure : measures()) EXPECT_LE(measure.key.size(), 64U);
}

/// The fields that the action's extract.ts takes for customSmallerIsBetter.
TEST(ActionBenchmarkJson, IsOfTheType) {
  for (const json& entry : json::parse(action_benchmark_json(every_verdict(), "bench")))
    for (const auto& [key, value] : entry.items()) {
      EXPECT_THAT((std::vector<std::string>{"name", "unit", "value", "range", "extra"}),
                  testing::Contains(key));
      EXPECT_EQ(value.is_number(), key == "value") << key;
      EXPECT_EQ(value.is_string(), key != "value") << key;
    }
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
