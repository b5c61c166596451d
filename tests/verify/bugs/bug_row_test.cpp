#include "verify/bugs/bug_row.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mfsdp::bugs {
namespace {

using testing::ElementsAre;

/// A row with one piece of its text replaced.
std::string row_with(const std::string& old, const std::string& now) {
  std::string text = R"({
  "row": 7, "title": "t", "thread": "owner/repo#12", "bug": "b",
  "base": {"flags": ["--model", "llama_nano"], "plan_hash": "00ff"},
  "broken": {"edits": [
    {"drop": {"op": 1, "name": "x"}},
    {"move": {"op": 1, "name": "x"}, "after": {"op": 2, "name": "y"}}
  ]},
  "rules": ["MF101", "MF102"], "notes": ["MF604"]
})";
  const std::size_t at = text.find(old);
  if (at == std::string::npos) throw std::logic_error("no " + old);
  return text.replace(at, old.size(), now);
}

std::string error_of(const std::string& old, const std::string& now) {
  const auto row = read_bug_row(row_with(old, now), "a/07-x.json");
  return row ? "no error" : row.error().message();
}

TEST(BugRow, IsRead) {
  const auto row = read_bug_row(row_with("\"t\"", "\"t\""), "a/07-x.json");
  ASSERT_TRUE(row) << row.error().message();
  EXPECT_EQ(row->number, 7);
  EXPECT_THAT(row->base.flags, ElementsAre("--model", "llama_nano"));
  EXPECT_EQ(row->base.hash, "00ff");
  ASSERT_EQ(row->edits.size(), 2u);
  EXPECT_EQ(row->edits[0].kind, EditKind::drop);
  EXPECT_EQ(row->edits[1].kind, EditKind::move);
  EXPECT_TRUE(row->edits[1].after);
  EXPECT_EQ(row->edits[1].where, "a/07-x.json: broken.edits[1]");
  EXPECT_THAT(row->rules, ElementsAre("MF101", "MF102"));
  EXPECT_THAT(row->notes, ElementsAre("MF604"));
  EXPECT_FALSE(row->some_ranks);
}

TEST(BugRow, MayStartFromOtherPlansAndConcernSomeRanks) {
  const auto row = read_bug_row(
      row_with("{\"edits\": [",
               R"({"base": {"plan": "p.json", "plan_hash": "1"}, "ranks": "some", "edits": [)"),
      "07-x.json");
  ASSERT_TRUE(row) << row.error().message();
  EXPECT_TRUE(row->some_ranks);
  EXPECT_EQ(row->broken_base->plan, "p.json");
}

TEST(BugRow, ErrorsNameFileAndPlace) {
  EXPECT_EQ(error_of("\"row\": 7", "\"row\": 8"),
            "a/07-x.json: row: expected the number that the file's name begins with, got 8");
  EXPECT_EQ(error_of("\"row\": 7", "\"row\": -7"),
            "a/07-x.json: row: expected an integer from 0 to 4294967295, got -7");
  EXPECT_EQ(error_of("\"title\": \"t\", ", ""), "a/07-x.json: title: missing");
  EXPECT_EQ(error_of("\"t\"", "\"\""), "a/07-x.json: title: expected a text, got \"\"");
  EXPECT_EQ(error_of("owner/repo#12", "repo#12"),
            "a/07-x.json: thread: expected owner/repository#number, got \"repo#12\"");
  EXPECT_EQ(error_of("\"bug\"", "\"bugs\""), "a/07-x.json: bug: missing");
  EXPECT_EQ(error_of("\"bug\": \"b\"", "\"bug\": \"b\", \"x\": 1"), "a/07-x.json: x: unknown key");
  EXPECT_EQ(error_of("[\"--model\", \"llama_nano\"]", "[]"),
            "a/07-x.json: base.flags: expected a list of texts, got []");
  EXPECT_EQ(error_of("\"flags\": [\"--model\", \"llama_nano\"], ", ""),
            "a/07-x.json: base: expected flags of a plan, or a plan's file");
  EXPECT_EQ(error_of(", \"plan_hash\": \"00ff\"", ""), "a/07-x.json: base.plan_hash: missing");
  EXPECT_EQ(error_of("\"plan_hash\"", "\"plan\": \"p\", \"plan_hash\""),
            "a/07-x.json: base.flags: unknown key");
}

TEST(BugRow, ErrorsNameTheEdit) {
  EXPECT_EQ(error_of("\"drop\"", "\"remove\""),
            "a/07-x.json: broken.edits[0]: expected one of add, copy, drop, insert, move or patch");
  EXPECT_EQ(error_of("{\"drop\": {", "{\"copy\": 1, \"drop\": {"),
            "a/07-x.json: broken.edits[0]: expected one edit");
  EXPECT_EQ(error_of("\"after\"", "\"behind\""),
            "a/07-x.json: broken.edits[1]: expected either after or before");
  EXPECT_EQ(error_of("\"drop\"", "\"patch\""), "a/07-x.json: broken.edits[0].with: missing");
  EXPECT_EQ(error_of("{\"drop\"", "{\"with\": [], \"drop\""),
            "a/07-x.json: broken.edits[0].with: unknown key");
  EXPECT_EQ(error_of("\"move\"", "\"copy\""), "a/07-x.json: broken.edits[1].id: missing");
  EXPECT_EQ(error_of("\"edits\": [\n    {\"drop\"", "\"ranks\": \"all\", \"edits\": [{\"drop\""),
            "a/07-x.json: broken.ranks: expected \"some\", got \"all\"");
}

TEST(BugRow, ThingsAreIdAndName) {
  const std::string expected =
      ": expected an id and its name, {\"op\": 3, \"name\": \"...\"}, got ";
  EXPECT_EQ(error_of("{\"op\": 1, \"name\": \"x\"}},", "{\"op\": 1}},"),
            "a/07-x.json: broken.edits[0].drop" + expected + "{\"op\":1}");
  EXPECT_EQ(error_of("{\"op\": 2, \"name\": \"y\"}", "2"),
            "a/07-x.json: broken.edits[1].after" + expected + "2");
  EXPECT_THAT(error_of("{\"op\": 2,", "{\"opp\": 2,"), testing::HasSubstr(expected));
  EXPECT_THAT(error_of("{\"op\": 2,", "{\"op\": -2,"), testing::HasSubstr(expected));
}

TEST(BugRow, RulesAreThoseOfTheTable) {
  EXPECT_EQ(error_of("\"MF102\"", "\"MF999\""),
            "a/07-x.json: rules: expected rules of severity error, got \"MF999\"");
  EXPECT_EQ(error_of("\"MF102\"", "\"MF604\""),
            "a/07-x.json: rules: expected rules of severity error, got \"MF604\"");
  EXPECT_EQ(error_of("[\"MF604\"]", "[\"MF101\"]"),
            "a/07-x.json: notes: expected rules of severity note, got \"MF101\"");
  EXPECT_EQ(error_of("\"MF101\", \"MF102\"", "\"MF102\", \"MF101\""),
            "a/07-x.json: rules: expected rules in ascending order, each once");
  EXPECT_EQ(error_of("\"rules\": [\"MF101\", \"MF102\"], \"notes\": [\"MF604\"]", "\"x\": 1"),
            "a/07-x.json: rules: expected at least one rule or note");
}

}  // namespace
}  // namespace mfsdp::bugs
