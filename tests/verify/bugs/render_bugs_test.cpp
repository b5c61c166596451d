#include "verify/bugs/render_bugs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace mfsdp::bugs {
namespace {

std::vector<BugVerdict> two_verdicts() {
  BugVerdict good;
  good.row = 4;
  good.file = "04-a.json";
  good.title = "A title";
  good.thread = "owner/repo#12";
  good.bug = "What | went wrong.";
  good.expected = {"MF101"};
  good.broken = {"MF101"};
  good.findings = {{.rule = "MF101", .message = "nothing orders a and b"}};
  good.good = true;
  BugVerdict bad = good;
  bad.row = 5;
  bad.broken = {"MF101", "MF602"};
  bad.fixed = {"MF305"};
  bad.good = false;
  return {good, bad};
}

TEST(RenderBugs, AsText) {
  EXPECT_EQ(render_bugs_text(two_verdicts()),
            R"(row  thread         bug      rules        verdict
  4  owner/repo#12  A title  MF101        found
  5  owner/repo#12  A title  MF101 MF602  WRONG

row 5: expected MF101, found MF101 MF602
row 5: its fixed plan has MF305
1 of 2 bugs fire exactly their rules; their fixed plans are clean
)");
}

TEST(RenderBugs, AsMarkdown) {
  const std::vector<BugVerdict> one{two_verdicts().front()};
  EXPECT_EQ(render_bugs_markdown(one),
            "| row | thread | what went wrong | rules |\n| --- | --- | --- | --- |\n"
            "| 4 | [owner/repo#12](https://github.com/owner/repo/issues/12) | What \\| went "
            "wrong. | MF101 |\n");
}

TEST(RenderBugs, AsJson) {
  const auto json = nlohmann::json::parse(render_bugs_json(two_verdicts()));
  EXPECT_EQ(json["rows"], 2);
  EXPECT_EQ(json["good"], 1);
  EXPECT_EQ(json["bugs"][0]["findings"][0]["message"], "nothing orders a and b");
  EXPECT_EQ(json["bugs"][1]["broken"], nlohmann::json({"MF101", "MF602"}));
  EXPECT_EQ(json["bugs"][1]["fixed"], nlohmann::json({"MF305"}));
  EXPECT_FALSE(json["bugs"][1]["good"]);
}

}  // namespace
}  // namespace mfsdp::bugs
