#include "verify/findings/render_findings.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <set>

#include "verify/findings/place_names.hpp"

namespace mfsdp {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

Place place(std::string name, std::string stream, std::uint32_t op) {
  return {.plan = "train",
          .segment = "forward",
          .step = 1,
          .repetition = 0,
          .op = OpId(op),
          .name = std::move(name),
          .stream = std::move(stream)};
}

Finding race() {
  Finding finding;
  finding.rule = "MF101";
  finding.message = "gather writes w | gemm reads it";
  finding.places = {place("gather", "all_gather", 3), place("gemm", "compute", 5)};
  finding.buffer = BufferId(7);
  finding.begin = 256;
  finding.end = 512;
  finding.missing = "gather (all_gather) -> gemm (compute)";
  finding.interleaving = {place("gemm", "compute", 5), place("gather", "all_gather", 3)};
  return finding;
}

Finding note() {
  Finding finding;
  finding.rule = "MF604";
  finding.message = "a wait";
  return finding;
}

const FindingsOf kOf{.subject = "plans/my plan.json", .version = "0.1.0"};

TEST(RenderFindings, Text) {
  EXPECT_EQ(render_findings_text({}), "No findings.\n");
  const std::string text = render_findings_text(std::vector{race(), note()});
  EXPECT_TRUE(
      text.starts_with("MF101 race: gather writes w | gemm reads it\n"
                       "  missing: gather (all_gather) -> gemm (compute)\n"))
      << text;
  EXPECT_THAT(text, HasSubstr("\n\nMF604 redundant-wait: a wait\n"));
  EXPECT_TRUE(text.ends_with("\n1 error, 1 note\n")) << text;
}

TEST(RenderFindings, TextKeepsALineALine) {
  Finding finding = note();
  finding.message = "two\nlines\x1b[31m";
  EXPECT_THAT(render_findings_text(std::vector{finding}), HasSubstr("two\\nlines\\x1b[31m"));
}

TEST(RenderFindings, ALongTimelineGoesOnInFurtherRows) {
  // Labels take 2 + 10 + 2 columns, each op 4: two of three ops fit 24 columns.
  Finding finding = race();
  finding.interleaving.push_back(place("norm", "compute", 6));
  EXPECT_THAT(render_findings_text(std::vector{finding}, 24), HasSubstr("\n\n"
                                                                        "  compute     1*  .\n"
                                                                        "  all_gather  .   2*\n"
                                                                        "\n"
                                                                        "  compute     3\n"
                                                                        "  all_gather  .\n"
                                                                        "\n"
                                                                        "  1  gemm"));
  EXPECT_THAT(render_findings_text(std::vector{finding}), HasSubstr("  compute     1*  .   3\n"
                                                                    "  all_gather  .   2*  .\n"
                                                                    "\n"
                                                                    "  1  gemm"));
}

TEST(RenderFindings, Markdown) {
  const std::string text = render_findings_markdown(std::vector{race(), note()}, kOf);
  EXPECT_TRUE(text.starts_with("### plans/my plan.json: 1 error, 1 note\n\n| rule |")) << text;
  EXPECT_THAT(text, HasSubstr("| MF101 race | error | gather writes w \\| gemm reads it |"));
  EXPECT_THAT(text, HasSubstr("```\n  compute     1*"));
  EXPECT_THAT(render_findings_markdown({}, kOf), HasSubstr("No findings.\n"));
}

TEST(RenderFindings, PeopleCountStepsAndRepetitionsFromOne) {
  Finding finding = race();
  EXPECT_EQ(to_string(finding.places[0]), "train/forward, step 2: gather (all_gather)");
  finding.places[0].repetition = 1;
  EXPECT_EQ(to_string(finding.places[0]),
            "train/forward repetition 2, step 2: gather (all_gather)");
  EXPECT_EQ(text_in_step(finding.places[0]), "gather (all_gather) in step 2");
  finding.interleaving = {finding.places[0]};
  EXPECT_THAT(render_findings_text(std::vector{finding}),
              HasSubstr("train, step 2, forward repetition 2, op 3\n"));
  const json place =
      json::parse(render_findings_json(std::vector{finding}, kOf))["findings"][0]["places"][0];
  EXPECT_EQ(place["step"], 1);
  EXPECT_EQ(place["repetition"], 1);
}

TEST(RenderFindings, Json) {
  const json document = json::parse(render_findings_json(std::vector{race(), note()}, kOf));
  EXPECT_EQ(document.at("errors"), 1);
  EXPECT_EQ(document.at("notes"), 1);
  const json& finding = document.at("findings").at(0);
  EXPECT_EQ(finding.at("buffer"), 7);
  EXPECT_EQ(finding.at("begin"), 256);
  EXPECT_EQ(finding.at("places").at(1).at("op"), 5);
  EXPECT_EQ(finding.at("interleaving").size(), 2U);
  EXPECT_EQ(document.at("findings").at(1).at("buffer"), nullptr);
}

TEST(RenderFindings, EveryFormatSaysWhatWasNotJudged) {
  FindingsOf of = kOf;
  of.not_judged = {{"MF813", "no\nwaits"}};
  EXPECT_EQ(render_not_judged_text(of.not_judged),
            "not judged: MF813 serialised-gather: no\\nwaits\n");
  EXPECT_THAT(render_findings_markdown({}, of),
              HasSubstr("- not judged: MF813 serialised-gather: no\\nwaits\n"));
  const json document = json::parse(render_findings_json({}, of));
  EXPECT_EQ(document.at("not_judged").at(0).at("rule"), "MF813");
  EXPECT_EQ(document.at("not_judged").at(0).at("reason"), "no\nwaits");
  const json result =
      json::parse(render_findings_sarif({}, of)).at("runs").at(0).at("results").at(0);
  EXPECT_EQ(result.at("kind"), "open");
  EXPECT_EQ(result.at("level"), "none");
  EXPECT_EQ(result.at("ruleId"), "MF813");
}

/// Checks what SARIF 2.1.0's schema requires of the objects that are written here.
void check_location(const json& location) {
  EXPECT_TRUE(location.at("physicalLocation").at("artifactLocation").at("uri").is_string());
  if (location.contains("message")) {
    EXPECT_TRUE(location.at("message").at("text").is_string());
  }
}

TEST(RenderFindings, SarifHasWhatItsSchemaRequires) {
  Finding unknown = note();
  unknown.rule = "MF999";
  const json document =
      json::parse(render_findings_sarif(std::vector{race(), note(), unknown}, kOf));
  EXPECT_EQ(document.at("version"), "2.1.0");
  EXPECT_THAT(document.at("$schema").get<std::string>(), HasSubstr("sarif-schema-2.1.0.json"));
  ASSERT_EQ(document.at("runs").size(), 1U);
  const json& driver = document.at("runs").at(0).at("tool").at("driver");
  EXPECT_EQ(driver.at("name"), "mfsdp-verify");
  EXPECT_EQ(driver.at("version"), "0.1.0");
  ASSERT_EQ(driver.at("rules").size(), rules().size());
  std::set<std::string> ids;
  for (const json& rule : driver.at("rules")) {
    EXPECT_TRUE(ids.insert(rule.at("id").get<std::string>()).second);
    EXPECT_TRUE(rule.at("shortDescription").at("text").is_string());
  }
  const json& results = document.at("runs").at(0).at("results");
  ASSERT_EQ(results.size(), 3U);
  for (const json& result : results) {
    EXPECT_FALSE(result.at("message").at("text").get<std::string>().empty());
    EXPECT_THAT((std::set<std::string>{"none", "note", "warning", "error"}),
                testing::Contains(result.at("level").get<std::string>()));
    if (result.contains("ruleIndex")) {
      EXPECT_EQ(driver.at("rules").at(result.at("ruleIndex").get<std::size_t>()).at("id"),
                result.at("ruleId"));
    }
    ASSERT_FALSE(result.at("locations").empty());
    for (const json& location : result.at("locations")) check_location(location);
    for (const auto& [name, value] : result.at("partialFingerprints").items())
      EXPECT_TRUE(value.is_string()) << name;
  }
  EXPECT_FALSE(results.at(2).contains("ruleIndex"));
}

TEST(RenderFindings, SarifShowsOpsAndOrder) {
  const json document = json::parse(render_findings_sarif(std::vector{race()}, kOf));
  const json& result = document.at("runs").at(0).at("results").at(0);
  const json& location = result.at("locations").at(0);
  EXPECT_EQ(location.at("physicalLocation").at("artifactLocation").at("uri"),
            "plans/my%20plan.json");
  EXPECT_EQ(location.at("logicalLocations").at(0).at("fullyQualifiedName"), "train/forward/gather");
  EXPECT_EQ(result.at("relatedLocations").at(0).at("logicalLocations").at(0).at("name"), "gemm");
  const json& steps = result.at("codeFlows").at(0).at("threadFlows").at(0).at("locations");
  ASSERT_EQ(steps.size(), 2U);
  for (const json& step : steps) check_location(step.at("location"));
}

TEST(RenderFindings, SarifWithoutFindingsHasResults) {
  const json document = json::parse(render_findings_sarif({}, {.subject = "", .version = ""}));
  EXPECT_EQ(document.at("runs").at(0).at("results"), json::array());
  EXPECT_FALSE(document.at("runs").at(0).at("tool").at("driver").contains("version"));
}

TEST(Fingerprint, KnowsAFindingAgain) {
  Finding again = race();
  again.places[0].step = 9;
  again.begin = 0;
  EXPECT_EQ(fingerprint(again), fingerprint(race()));
  EXPECT_EQ(fingerprint(race()).size(), 16U);
  Finding other = race();
  other.places[1].name = "gemm2";
  EXPECT_NE(fingerprint(other), fingerprint(race()));
  Finding first = note();
  Finding second = note();
  second.message = "another";
  EXPECT_NE(fingerprint(first), fingerprint(second));
}

}  // namespace
}  // namespace mfsdp
