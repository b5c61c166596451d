// The corpus itself: every row of scenarios/bugs. With MFSDP_UPDATE_GOLDEN set, rows take the ids
// that their names have in today's plans, and the README takes the table.
#include "verify/bugs/check_bugs.hpp"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <set>

#include "tests/support/samples.hpp"
#include "tests/support/scratch_folder.hpp"
#include "tests/verify/bugs/shipped_bugs.hpp"
#include "verify/bugs/render_bugs.hpp"
#include "verify/bugs/renew_row.hpp"

namespace mfsdp::bugs {
namespace {

namespace fs = std::filesystem;

using test::kBugFolders;
using test::read_file;
using test::ScratchFolder;
using test::write_file;
using testing::AllOf;
using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

const fs::path kReadme = kBugFolders.rows / "README.md";

void renew_rows() {
  // Listed before any is written: a folder that changes may be listed without end.
  std::vector<fs::path> rows;
  for (const auto& entry : fs::directory_iterator(kBugFolders.rows))
    if (entry.path().extension() == ".json") rows.push_back(entry.path());
  for (const fs::path& row : rows) {
    const auto renewed = renew_row(read_file(row), row.string(), kBugFolders);
    ASSERT_TRUE(renewed) << renewed.error().message();
    write_file(row, *renewed);
  }
}

/// The README with its table, which ends where lines stop to begin with "|", replaced.
std::string with_table(const std::string& readme, const std::string& table) {
  const std::size_t begin = readme.find("| row |");
  std::size_t end = begin;
  while (end < readme.size() && readme[end] == '|') end = readme.find('\n', end) + 1;
  return readme.substr(0, begin) + table + readme.substr(end);
}

TEST(BugCorpus, RowsFireExactlyTheirRulesAndAreUpToDate) {
  if (test::kOneCase) GTEST_SKIP() << "the tests below judge a row";
  const bool update = std::getenv("MFSDP_UPDATE_GOLDEN") != nullptr;
  if (update) renew_rows();
  const auto judged = check_bugs(kBugFolders);
  ASSERT_TRUE(judged) << judged.error().message();
  const std::vector<BugVerdict>& verdicts = *judged;
  if (update) write_file(kReadme, with_table(read_file(kReadme), render_bugs_markdown(verdicts)));
  EXPECT_GE(verdicts.size(), 40u);
  std::set<std::int64_t> rows;
  for (const BugVerdict& v : verdicts) {
    EXPECT_TRUE(v.good) << v.file;
    EXPECT_TRUE(rows.insert(v.row).second) << v.file;
    EXPECT_EQ(v.broken, v.expected) << v.file;
    EXPECT_THAT(v.broken, testing::Not(IsEmpty())) << v.file;
    EXPECT_THAT(v.fixed, IsEmpty()) << v.file;
    std::vector<std::string> shown;
    for (const Finding& finding : v.findings) shown.push_back(finding.rule);
    EXPECT_THAT(shown, testing::UnorderedElementsAreArray(v.broken)) << v.file;
    const std::string text = read_file(v.file);
    const auto renewed = renew_row(text, v.file, kBugFolders);
    ASSERT_TRUE(renewed) << renewed.error().message();
    EXPECT_EQ(*renewed, text);
  }
  // The first twelve that a plan can show; 11 is about the first weights, which no plan makes.
  for (std::int64_t row = 1; row <= 13; ++row) EXPECT_EQ(rows.contains(row), row != 11) << row;
  EXPECT_THAT(read_file(kReadme), HasSubstr("\n\n" + render_bugs_markdown(verdicts) + "\n"));
}

// ---- folders of one's own ----------------------------------------------------------------------

/// A row with the bug of row 1 in one unit.
std::string row_text(std::int64_t number, const std::string& rules) {
  const std::string text =
      fmt::format(R"row({{"row": {}, "title": "t", "thread": "a/b#1", "bug": "b",
    "base": {{"flags": ["--model", "llama_nano", "--world-size", "4"], "plan_hash": "stale"}},
    "broken": {{"edits": [{{"drop":
      {{"op": 0, "name": "only: wait fresh.layers.0 (all_gather)"}}}}]}},
    "rules": [{}]}})row",
                  number, rules);
  return renew_row(text, fmt::format("{:02}-row.json", number), kBugFolders).value();
}

std::string replaced(std::string text, const std::string& old, const std::string& now) {
  const std::size_t at = text.find(old);
  if (at == std::string::npos) throw std::logic_error("no " + old);
  return text.replace(at, old.size(), now);
}

BugFolders folders_of(const ScratchFolder& folder) {
  return {.rows = folder.path(), .scenarios = kBugFolders.scenarios};
}

TEST(CheckBugs, TellsWhatIsFoundFromWhatIsExpected) {
  const ScratchFolder folder;
  write_file(folder / "01-right.json", row_text(1, R"("MF101")"));
  write_file(folder / "02-too-many.json", row_text(2, R"("MF101", "MF102")"));
  write_file(folder / "03-other.json", row_text(3, R"("MF401")"));
  const auto verdicts = check_bugs(folders_of(folder));
  ASSERT_TRUE(verdicts) << verdicts.error().message();
  ASSERT_EQ(verdicts->size(), 3u);
  EXPECT_TRUE((*verdicts)[0].good);
  EXPECT_FALSE((*verdicts)[1].good);
  EXPECT_FALSE((*verdicts)[2].good);
  EXPECT_THAT((*verdicts)[2].broken, testing::ElementsAre("MF101"));
  EXPECT_THAT((*verdicts)[0].findings[0].message, HasSubstr("nothing orders"));
}

TEST(CheckBugs, NamesWhatIsWrongWithARow) {
  const auto error_of = [](const std::string& name, const std::string& text) {
    const ScratchFolder folder;
    write_file(folder / name, text);
    const auto verdicts = check_bugs(folders_of(folder));
    return verdicts ? "no error" : verdicts.error().message();
  };
  const std::string text = row_text(1, R"("MF101")");
  EXPECT_THAT(error_of("01-a.json", replaced(text, "plan_hash\": \"", "plan_hash\": \"0")),
              HasSubstr("01-a.json: base.plan_hash: the plan has hash "));
  EXPECT_THAT(error_of("01-a.json", replaced(text, "\"op\": 1", "\"op\": 1000000001")),
              AllOf(HasSubstr("01-a.json: broken.edits[0]: op 1000000001"),
                    HasSubstr("expected \"only: wait fresh.layers.0 (all_gather)\", which is 1")));
  EXPECT_THAT(error_of("01-a.json", replaced(text, "--world-size", "--world-syze")),
              AllOf(HasSubstr("01-a.json: base.flags: "), HasSubstr("--world-syze")));
  EXPECT_THAT(error_of("01-a.json", replaced(text, "--world-size", "--trace")),
              HasSubstr("base.flags: --trace: expected flags that shape a plan"));
}

TEST(CheckBugs, FoldersNeedRowsOfDifferentNumbers) {
  const ScratchFolder folder;
  auto verdicts = check_bugs(folders_of(folder));
  ASSERT_FALSE(verdicts);
  EXPECT_THAT(verdicts.error().message(), HasSubstr("expected rows of the bug corpus"));
  write_file(folder / "01-a.json", row_text(1, R"("MF101")"));
  write_file(folder / "01-b.json", row_text(1, R"("MF101")"));
  verdicts = check_bugs(folders_of(folder));
  ASSERT_FALSE(verdicts);
  EXPECT_THAT(verdicts.error().message(),
              AllOf(HasSubstr("01-b.json: row: 1 is also the row of '"), HasSubstr("01-a.json'")));
  verdicts = check_bugs({.rows = folder / "missing", .scenarios = kBugFolders.scenarios});
  ASSERT_FALSE(verdicts);
  EXPECT_EQ(verdicts.error().fault, Fault::input);
  EXPECT_THAT(verdicts.error().message(), HasSubstr("missing: cannot be listed: "));
}

}  // namespace
}  // namespace mfsdp::bugs
