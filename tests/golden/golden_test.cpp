// The golden runner itself: that it reads, masks, compares, and above all that it can fail.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/golden/runner.hpp"
#include "tests/golden/transcript.hpp"

namespace mfsdp::golden {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

const Command& only_command(const Transcript& transcript) {
  return std::get<Command>(transcript.entries.back());
}

TEST(Transcript, ReadsSetupCommandAndOutput) {
  const Transcript transcript = parse(
      "# why\n"
      "+ write a.json <<END\n"
      "{}\n"
      "END\n"
      "+ mkdir d\n"
      "$ tool a.json\n"
      "one\n"
      "! two\n"
      "!\n"
      "exit 2\n");
  ASSERT_EQ(transcript.error, "");
  ASSERT_EQ(transcript.entries.size(), 4u);
  EXPECT_THAT(std::get<WriteFile>(transcript.entries[1]).lines, ElementsAre("{}"));
  EXPECT_EQ(std::get<Preparation>(transcript.entries[2]).line, "mkdir d");
  const Command& command = only_command(transcript);
  EXPECT_EQ(command.line, "tool a.json");
  EXPECT_EQ(command.at, 6u);
  EXPECT_THAT(command.expected.out, ElementsAre("one"));
  EXPECT_THAT(command.expected.err, ElementsAre("two", ""));
  EXPECT_EQ(command.expected.exit_code, 2);
}

TEST(Transcript, ReadsBackWhatItWrites) {
  const std::string text =
      "# remark\n\n+ write f <<X\na\nX\n+ true\n$ t\n\\! not stderr\n\\exit 1\n\\\\x\nout\n! "
      "err\nexit 0\n"
      "$ u\nexit 1\n";
  const Transcript transcript = parse(text);
  ASSERT_EQ(transcript.error, "");
  EXPECT_EQ(render(transcript), text);
}

TEST(Transcript, StdoutThatLooksLikeStderrIsEscaped) {
  const Output output{.out = {"! a", "exit 3", "\\b"}, .err = {}, .exit_code = 0};
  std::string text = "$ t\n";
  for (const auto& line : render(output)) text += line + "\n";
  EXPECT_EQ(only_command(parse(text)).expected.out, output.out);
}

TEST(Transcript, NamesWhatIsWrong) {
  EXPECT_THAT(parse("").error, HasSubstr("no command"));
  EXPECT_THAT(parse("$ tool\nout\n").error, HasSubstr("no 'exit N'"));
  EXPECT_THAT(parse("tool\n").error, HasSubstr("line 1: expected"));
  EXPECT_THAT(parse("+ write f <<X\nabc\n").error, HasSubstr("not closed by X"));
  EXPECT_THAT(parse("+ write f\n").error, HasSubstr("+ write FILE <<END"));
}

TEST(Markdown, BlocksThatBeginWithACommandAreATranscript) {
  const Transcript transcript = parse_markdown(
      "Text\n"
      "$ no block\n"
      "```\ntool --no-output\n$ no command\n```\n"
      "```sh\n$ tool a\none\n...\n$ tool b\n```\n"
      "more text\n");
  ASSERT_EQ(transcript.error, "");
  ASSERT_EQ(transcript.entries.size(), 2u);
  const Command& first = std::get<Command>(transcript.entries.front());
  EXPECT_EQ(first.line, "tool a");
  EXPECT_EQ(first.at, 8u);
  EXPECT_THAT(first.expected.out, ElementsAre("one", "..."));
  EXPECT_THAT(only_command(transcript).expected.out, IsEmpty());
  const Transcript with_file = parse_markdown("```json a.json\n{}\n$ x\n```\n```\n$ tool\n```\n");
  ASSERT_EQ(with_file.entries.size(), 2u);
  EXPECT_EQ(std::get<WriteFile>(with_file.entries.front()).path, "a.json");
  EXPECT_THAT(std::get<WriteFile>(with_file.entries.front()).lines, ElementsAre("{}", "$ x"));
  EXPECT_THAT(parse_markdown("```json a.json\n{}\n```\n").error, HasSubstr("with a command"));
  EXPECT_THAT(parse_markdown("```\ntool\n```\n").error, HasSubstr("no block with a command"));
  EXPECT_THAT(parse_markdown("```\n$ tool\n").error, HasSubstr("not closed"));
}

TEST(Markdown, DotsStandForAnyLines) {
  const std::vector<std::string> actual{"a", "b", "c", "d"};
  const auto fills = [&](const std::vector<std::string>& expected) {
    return fill_gaps(expected, actual) == actual;
  };
  EXPECT_TRUE(fills({"a", "b", "c", "d"}));
  EXPECT_TRUE(fills({"a", "..."}));
  EXPECT_TRUE(fills({"...", "c", "d"}));
  EXPECT_TRUE(fills({"a", "...", "c", "..."}));
  EXPECT_TRUE(fills({"a", "...", "b", "c", "d"}));
  EXPECT_FALSE(fills({"a", "...", "c"}));
  EXPECT_FALSE(fills({"a", "...", "x", "..."}));
  EXPECT_FALSE(fills({"b", "..."}));
}

TEST(Output, MarksAMissingLastNewline) {
  EXPECT_THAT(split_output("a\nb\n"), ElementsAre("a", "b"));
  EXPECT_THAT(split_output("a\nb"), ElementsAre("a", "b[no newline]"));
  EXPECT_THAT(split_output("\n"), ElementsAre(""));
  EXPECT_THAT(split_output(""), IsEmpty());
}

TEST(Matches, MaskStandsForAnyTextInOneLine) {
  EXPECT_TRUE(matches("run [..] stored", "run 7f3 stored"));
  EXPECT_TRUE(matches("[..]", ""));
  EXPECT_TRUE(matches("a[..]b[..]c", "a b b c"));
  EXPECT_TRUE(matches("[..]ab", "aab"));
  EXPECT_FALSE(matches("run [..] stored", "run 7f3 lost"));
  EXPECT_FALSE(matches("a[..]a", "a"));  // one 'a' cannot be both ends
  EXPECT_FALSE(matches("plain", "plain "));
}

TEST(Difference, ShowsOnlyWhatDiffersWithContext) {
  EXPECT_EQ(unified_difference({"a", "[..]"}, {"a", "b"}), "");
  EXPECT_EQ(unified_difference({"1", "2", "3", "4", "5", "6"}, {"1", "2", "3", "4", "x", "6"}),
            "@@ expected line 2, printed line 2 @@\n 2\n 3\n 4\n-5\n+x\n 6\n");
}

TEST(Difference, UpdateKeepsMasksThatStillMatch) {
  EXPECT_THAT(keep_masks({"id [..]", "old"}, {"id 42", "new", "more"}),
              ElementsAre("id [..]", "new", "more"));
}

/// A transcript in a file of its own, run without any tool of ours.
class Runner : public testing::Test {
 protected:
  // What the runner keeps of a failure goes with this test's own folder.
  Runner() { setenv("TMPDIR", folder_.c_str(), 1); }
  ~Runner() override {
    unsetenv("TMPDIR");
    fs::remove_all(folder_);
  }

  Outcome run_text(const std::string& text, bool update = false) {
    return run_file(file(), text, update);
  }
  Outcome run_markdown(const std::string& text) {
    return run_file(folder_ / "read.md", text, false);
  }
  static Outcome run_file(const fs::path& file, const std::string& text, bool update) {
    std::ofstream(file) << text;
    return run({.transcript = file,
                .tool_path = "/nonexistent",
                .source = MFSDP_SOURCE_DIR,
                .build = MFSDP_BINARY_DIR,
                .update = update});
  }
  [[nodiscard]] std::string text() const {
    std::ifstream in(file());
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  }
  [[nodiscard]] fs::path file() const { return folder_ / "case.txt"; }

 private:
  static fs::path make_folder() {
    std::string pattern = fs::temp_directory_path() / "mfsdp-golden-test-XXXXXX";
    return mkdtemp(pattern.data());
  }
  fs::path folder_ = make_folder();
};

TEST_F(Runner, PassesWhenOutputAndExitCodeAgree) {
  const Outcome outcome = run_text(
      "+ write sub/in.txt <<END\nhello\nEND\n"
      "$ cat sub/in.txt; echo warn >&2; exit 3\nhello\n! warn\nexit 3\n");
  EXPECT_TRUE(outcome.passed) << outcome.report;
}

TEST_F(Runner, FailsOnStdoutStderrAndExitCode) {
  EXPECT_FALSE(run_text("$ echo a\nb\nexit 0\n").passed);
  EXPECT_FALSE(run_text("$ echo a >&2\na\nexit 0\n").passed);
  EXPECT_FALSE(run_text("$ true\nexit 1\n").passed);
  EXPECT_FALSE(run_text("$ echo a\nexit 0\n").passed);
  EXPECT_FALSE(run_text("+ false\n$ true\nexit 0\n").passed);
  EXPECT_FALSE(run_text("$ true\n").passed);
}

TEST_F(Runner, ReportNamesCommandDifferenceAndHowToRepeatIt) {
  const Outcome outcome = run_text("$ echo 'it''s'\nexpected\nexit 0\n");
  ASSERT_FALSE(outcome.passed);
  EXPECT_THAT(outcome.report, HasSubstr("case.txt:1: $ echo"));
  EXPECT_THAT(outcome.report, HasSubstr("-expected\n+its\n exit 0\n"));
  EXPECT_THAT(outcome.report, HasSubstr("by hand: cd "));
}

TEST_F(Runner, EnvironmentIsFixedAndThereIsNoTerminal) {
  const Outcome outcome = run_text(
      "$ echo \"$NO_COLOR $COLUMNS $LC_ALL $TZ\"; test -t 1 || echo no terminal; cat\n"
      "1 100 C.UTF-8 UTC\nno terminal\nexit 0\n"
      "$ echo \"${USER-unset}\"; pwd; echo \"$HOME\"\nunset\n[WORK]\n[HOME]\nexit 0\n");
  EXPECT_TRUE(outcome.passed) << outcome.report;
}

TEST_F(Runner, AMarkdownFileShowsWhatIsPrinted) {
  EXPECT_TRUE(run_markdown("```\n$ seq 5\n1\n...\n4\n5\n```\n").passed);
  EXPECT_TRUE(run_markdown("```text a\none\n```\n```\n$ cat a\none\n```\n").passed);
  const Outcome stale = run_markdown("text\n```\n$ seq 5\n1\n...\n4\n6\n```\n");
  EXPECT_FALSE(stale.passed);
  EXPECT_THAT(stale.report, HasSubstr("read.md:3: $ seq 5"));
  EXPECT_THAT(stale.report, HasSubstr("-6\n+5\n"));
  EXPECT_FALSE(run_markdown("```\n$ echo a; exit 1\na\n```\n").passed);
  EXPECT_FALSE(run_markdown("```\n$ echo a; echo b >&2\na\n```\n").passed);
}

TEST_F(Runner, ASignalIsAnExitCode) {
  // 128 + SIGKILL (9) = 137
  const Outcome outcome = run_text("$ kill -KILL $$\nexit 137\n");
  EXPECT_TRUE(outcome.passed) << outcome.report;
}

TEST_F(Runner, UpdateRewritesAndKeepsMasks) {
  const Outcome outcome = run_text("# why\n$ echo id 42; echo new\nid [..]\nold\nexit 1\n", true);
  EXPECT_TRUE(outcome.passed);
  EXPECT_EQ(text(), "# why\n$ echo id 42; echo new\nid [..]\nnew\nexit 0\n");
}

}  // namespace
}  // namespace mfsdp::golden
