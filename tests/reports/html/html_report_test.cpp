#include "reports/html/html_report.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <regex>

#include "reports/html/assets.hpp"
#include "reports/html/repeats.hpp"
#include "reports/html/report_data.hpp"
#include "tests/support/predicted.hpp"
#include "tests/support/sample_run.hpp"

namespace mfsdp {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

Json data_of(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="data">)";
  const std::size_t at = page.find(begin) + begin.size();
  return Json::parse(page.substr(at, page.find("</script>", at) - at));
}

std::size_t count(const std::string& text, std::string_view part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
    ++found;
  return found;
}

TEST(HtmlReport, IsOneFileThatAsksForNothing) {
  const std::vector<RunResult> runs{test::sample_run(), test::measured_run("other")};
  const std::string page = html_report(runs, {});
  EXPECT_EQ(data_of(page)["runs"].size(), 2U);
  for (const char* part : {" src=", " href=\"http", "@import", "url(", "innerHTML", "eval("})
    EXPECT_THAT(page, Not(HasSubstr(part)));
  EXPECT_THAT(page, HasSubstr("https://github.com/leeoniya/uPlot (v1.6.32)"));  // its notice
}

TEST(HtmlReport, ThePolicyNamesEveryStyleAndScriptByItsHash) {
  const std::string page = html_report({}, {});
  const std::regex policy(R"re(Content-Security-Policy" content="([^"]*)")re");
  std::smatch match;
  ASSERT_TRUE(std::regex_search(page, match, policy));
  const std::string text = match[1];
  EXPECT_THAT(text,
              ::testing::StartsWith("default-src 'none'; base-uri 'none'; form-action 'none'"));
  EXPECT_EQ(count(text, "'sha256-"), html_assets().size() - 1);  // all but the skeleton
  EXPECT_EQ(count(page, "<script>"), count(text.substr(0, text.find("style-src")), "'sha256-"));
  EXPECT_EQ(count(page, "<style>"), count(text.substr(text.find("style-src")), "'sha256-"));
}

TEST(HtmlReport, TextsOfRunsAreNeverMarkup) {
  PredictedRun run = test::sample_run();
  run.name = "</script><!-- & \xe2\x80\xa8 {{script}} \xff";
  run.timeline[0].name = "<b>";
  const std::vector<RunResult> runs{run};
  HtmlOptions options;
  options.title = "<title>";
  const std::string page = html_report(runs, options);
  const std::string data = report_json(runs, options);
  EXPECT_THAT(page, HasSubstr(data));
  for (const char c : {'<', '>', '&'}) EXPECT_EQ(data.find(c), std::string::npos) << c;
  EXPECT_EQ(data.find("\xe2\x80\xa8"), std::string::npos);
  const Json parsed = data_of(page);
  EXPECT_EQ(parsed["title"], "<title>");
  EXPECT_EQ(parsed["runs"][0]["result"]["name"],
            "</script><!-- & \xe2\x80\xa8 {{script}} \xef\xbf\xbd");
  EXPECT_EQ(parsed["texts"][0], "<b>");
}

TEST(HtmlReport, WhatThePlanTellsIsNullWithoutIt) {
  const auto predicted = test::predicted([](PlanConfig&) {});
  const std::vector<RunResult> runs{predicted.run()};
  const Json without = Json::parse(report_json(runs, {}));
  EXPECT_TRUE(without["plans"].empty());
  EXPECT_TRUE(without["runs"][0]["plan"].is_null());
  EXPECT_TRUE(without["runs"][0]["buffers"].is_null());
  int asked = 0;
  HtmlOptions options;
  options.program = [&](const RunResult&) {
    ++asked;
    return std::make_shared<const Program>(predicted.program);
  };
  const std::vector<RunResult> twice{predicted.run(), predicted.run()};
  const Json with = Json::parse(report_json(twice, options));
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(with["plans"].size(), 1U);
  EXPECT_EQ(with["runs"][1]["plan"], 0);
  EXPECT_FALSE(with["runs"][1]["buffers"].is_null());
}

TEST(HtmlReport, LongCurvesKeepTheirLowsAndHighs) {
  MeasuredRun run = test::measured_run();
  run.steps.clear();
  for (std::int64_t i = 1; i <= 10'000; ++i) {
    StepResult step;
    step.step = i;
    step.duration = Nanos(1000);
    step.loss = i == 5'003 ? 99.0 : i == 7'777 ? -1.0 : 2.0;
    run.steps.push_back(step);
  }
  HtmlOptions options;
  options.most_points = 400;
  const std::vector<RunResult> runs{run};
  const Json steps = Json::parse(report_json(runs, options))["runs"][0]["steps"];
  EXPECT_EQ(steps["of"], 10'000);
  EXPECT_LE(steps["loss"].size(), 400U);
  EXPECT_THAT(steps["loss"], ::testing::Contains(99.0));
  EXPECT_THAT(steps["loss"], ::testing::Contains(-1.0));
}

TEST(HtmlReport, NumbersThatAreNoneAreNull) {
  MeasuredRun run = test::measured_run();
  StepResult step;
  step.loss = std::numeric_limits<double>::infinity();
  run.steps = {step};
  run.evaluations = {{.step = 1, .loss = std::numeric_limits<double>::quiet_NaN(), .tokens = 2}};
  const std::vector<RunResult> runs{run};
  const Json data = Json::parse(report_json(runs, {}))["runs"][0];
  EXPECT_TRUE(data["steps"]["loss"][0].is_null());
  EXPECT_EQ(data["evaluations"], Json::parse("[[1,null,2]]"));
}

TEST(HtmlReport, MicrobatchesThatRunAlikeStandOnce) {
  const auto few = test::predicted([](PlanConfig& config) { config.microbatches = 8; });
  const auto many = test::predicted([](PlanConfig& config) { config.microbatches = 64; });
  const auto size = [](const test::Predicted& predicted) {
    HtmlOptions options;
    options.program = [&](const RunResult&) {
      return std::make_shared<const Program>(predicted.program);
    };
    const std::vector<RunResult> runs{predicted.run()};
    return report_json(runs, options).size();
  };
  EXPECT_GT(many.run().timeline.size(), 6 * few.run().timeline.size());
  EXPECT_LT(size(many), size(few) + 56 * 100);  // a copy of an instance is a line
}

TEST(Repeats, KeptPositionsAreThoseOfNoCopy) {
  // 0 1 [2 3] 2' 3' 2'' 3'' 8 9
  const std::vector<Repeat> repeats{{.first = 2, .count = 2, .copies = 2, .period = Nanos(5)}};
  EXPECT_THAT(kept_positions(10, repeats), ::testing::ElementsAre(0, 1, 2, 3, 8, 9));
  EXPECT_THAT(kept_positions(2, {}), ::testing::ElementsAre(0, 1));
}

}  // namespace
}  // namespace mfsdp
