#include "verify/bugs/renew_row.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/verify/bugs/shipped_bugs.hpp"

namespace mfsdp::bugs {
namespace {

using test::kBugFolders;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr std::string_view kRow = R"row({"row": 1, "title": "t", "thread": "a/b#1", "bug": "b",
  "base": {"flags": ["--model", "llama_nano", "--world-size", "4"], "plan_hash": "stale"},
  "broken": {"edits": [
    {"drop": {"op": 12345, "name": "only: wait fresh.layers.0 (all_gather)"}},
    {"add": {"event": {"id": 900, "name": "mine"}}},
    {"patch": {"op": 2, "name": "no such op"}, "with": []}
  ]},
  "rules": ["MF101"]})row";

TEST(RenewRow, GivesNamesTheirIdsOfToday) {
  const auto renewed = renew_row(kRow, "01-a.json", kBugFolders);
  ASSERT_TRUE(renewed) << renewed.error().message();
  EXPECT_THAT(*renewed, ContainsRegex(R"re("op": [0-9]+, "name": "only: wait fresh)re"));
  EXPECT_THAT(*renewed, Not(HasSubstr("12345")));
  EXPECT_THAT(*renewed, HasSubstr(R"({"id": 900, "name": "mine"})"));
  EXPECT_THAT(*renewed, HasSubstr(R"({"op": 2, "name": "no such op"})"));
  EXPECT_THAT(*renewed, Not(HasSubstr("stale")));
  EXPECT_EQ(renew_row(*renewed, "01-a.json", kBugFolders), *renewed);
}

TEST(RenewRow, RefusesWhatIsNoRow) { EXPECT_FALSE(renew_row("{}", "01-a.json", kBugFolders)); }

}  // namespace
}  // namespace mfsdp::bugs
