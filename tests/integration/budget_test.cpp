// Budgets from outside: a run over its budget by the smallest amount, and the shipped workflow.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

const fs::path kTools = fs::path(MFSDP_BINARY_DIR) / "sim";
const fs::path kSource = MFSDP_SOURCE_DIR;
const fs::path kWorkflow = kSource / "scenarios" / "ci" / "mfsdp-budget.yml";

struct ScriptRun {
  int status = 0;
  std::string err;
};

/// A script as GitHub runs it under `shell: bash`, with the built tools on PATH, in a folder that
/// holds scenarios/ as a checkout does.
ScriptRun run_bash(const test::ScratchFolder& folder, const std::string& script) {
  if (!fs::exists(folder / "scenarios"))
    fs::create_directory_symlink(kSource / "scenarios", folder / "scenarios");
  test::write_file(folder / "script.sh", script);
  const std::string command = fmt::format(
      "cd '{}' && PATH='{}':\"$PATH\" GITHUB_STEP_SUMMARY=summary.md "
      "bash --noprofile --norc -eo pipefail script.sh >/dev/null 2>err",
      folder.path().string(), kTools.string());
  const int status = std::system(command.c_str());  // NOLINT(cert-env33-c): the test's own words
  return {.status = WEXITSTATUS(status), .err = test::read_file(folder / "err")};
}

/// A limit of a budget file: its line, key and value.
struct Line {
  std::size_t number = 0;
  std::string key;
  std::int64_t value = 0;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::string joined(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

std::vector<Line> limits_of(const std::vector<std::string>& lines) {
  std::vector<Line> limits;
  std::string table;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string& line = lines[i];
    if (line.starts_with('[')) table = line.substr(1, line.size() - 2);
    const std::size_t equals = line.find(" = ");
    if (table.empty() || equals == std::string::npos) continue;
    limits.push_back({.number = i + 1,
                      .key = table + "." + line.substr(0, equals),
                      .value = std::stoll(line.substr(equals + 3))});
  }
  return limits;
}

TEST(Budget, OneTooManyFailsWithTheLineForEveryLimit) {
  const test::ScratchFolder folder;
  const std::string tool = "mfsdp-sim --model llama_nano --gpus 4 --no-save ";
  const std::string file = (folder / "budget.toml").string();
  ASSERT_EQ(run_bash(folder, tool + "--budget-out budget.toml").status, 0);
  const std::string command = tool + "--budget budget.toml";
  const ScriptRun kept = run_bash(folder, command);
  EXPECT_EQ(kept.status, 0);
  EXPECT_EQ(kept.err, "");

  const std::vector<std::string> lines = lines_of(test::read_file(file));
  const std::vector<Line> limits = limits_of(lines);
  ASSERT_EQ(limits.size(), 21u);
  for (const Line& limit : limits) {
    if (limit.value == 0) continue;  // nothing is below it
    std::vector<std::string> tight = lines;
    std::string& line = tight[limit.number - 1];
    line = line.substr(0, line.find(" = ")) + fmt::format(" = {}", limit.value - 1);
    test::write_file(file, joined(tight));
    const ScriptRun outcome = run_bash(folder, command);
    EXPECT_EQ(outcome.status, 1) << limit.key;
    EXPECT_EQ(outcome.err,
              fmt::format("mfsdp-sim: budget.toml:{}: {} is {}, 1 over the limit of {}\n",
                          limit.number, limit.key, limit.value, limit.value - 1));
  }
}

/// A step of the workflow that runs something.
struct Step {
  std::string name;
  std::string script;
};

std::size_t indent_of(const std::string& line) { return line.find_first_not_of(' '); }

/// The `run:` steps with their names, of YAML as the workflow writes it: `- name: ...` and then
/// `run: command` or a block under `run: |`.
std::vector<Step> run_steps(const std::vector<std::string>& lines) {
  std::vector<Step> steps;
  std::string name;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string line = lines[i].substr(std::min(indent_of(lines[i]), lines[i].size()));
    if (line.starts_with("- name: ")) name = line.substr(8);
    if (!line.starts_with("run: ")) continue;
    Step step{.name = name, .script = line.substr(5) + "\n"};
    if (line == "run: |") {
      step.script.clear();
      const std::size_t outer = indent_of(lines[i]);
      for (; i + 1 < lines.size() && indent_of(lines[i + 1]) > outer; ++i)
        step.script += lines[i + 1].substr(std::min(outer + 2, lines[i + 1].size())) + "\n";
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

/// The step that checks, after a look at those that a test cannot run: what they call exists.
std::string checking_step() {
  const std::vector<Step> steps = run_steps(lines_of(test::read_file(kWorkflow)));
  EXPECT_EQ(steps.size(), 3u);
  EXPECT_EQ(steps.at(0).name, "Install");
  EXPECT_EQ(steps.at(0).script, "scripts/install-dependencies\n");
  EXPECT_EQ(steps.at(1).name, "Build");
  EXPECT_EQ(steps.at(1).script,
            "scripts/build release --target mfsdp-sim\n"
            "echo \"$PWD/build/release/sim\" >> \"$GITHUB_PATH\"\n");
  for (const char* script : {"install-dependencies", "build"})
    EXPECT_TRUE(fs::exists(kSource / "scripts" / script)) << script;
  EXPECT_EQ(steps.at(2).name, "Check the budget");
  return steps.at(2).script;
}

TEST(ShippedWorkflow, ItsCheckPassesAndWritesSummaryAndBudget) {
  const test::ScratchFolder folder;
  const ScriptRun outcome = run_bash(folder, checking_step());
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  const std::string summary = test::read_file(folder / "summary.md");
  EXPECT_THAT(summary, testing::HasSubstr("| llama3_8b | h100 | 64 |"));
  EXPECT_THAT(summary, testing::HasSubstr("0 of 8 limits exceeded"));
  const std::string artifact = test::read_file(folder / "budget_of_this_run.toml");
  EXPECT_EQ(limits_of(lines_of(artifact)).size(), 21u);
}

TEST(ShippedWorkflow, ItsCheckFailsByOneByte) {
  const fs::path shipped = fs::path("scenarios") / "ci" / "llama3_8b_64xh100.toml";
  const test::ScratchFolder folder;
  std::string script = checking_step();
  const std::size_t at = script.find(shipped.string());
  ASSERT_NE(at, std::string::npos);
  script.replace(at, shipped.string().size(), "tight.toml");

  std::string budget = test::read_file(kSource / shipped);
  const std::string key = "allocated_bytes = ";
  const std::size_t begin = budget.find("\n" + key) + 1 + key.size();
  const std::size_t end = budget.find('\n', begin);
  const std::int64_t limit = std::stoll(budget.substr(begin, end - begin));
  budget.replace(begin, end - begin, fmt::format("{}", limit - 1));
  test::write_file(folder / "tight.toml", budget);

  const ScriptRun outcome = run_bash(folder, script);
  EXPECT_EQ(outcome.status, 1);
  EXPECT_EQ(
      outcome.err,
      fmt::format("mfsdp-sim: tight.toml:7: memory.allocated_bytes is {}, 1 over the limit of "
                  "{}\n",
                  limit, limit - 1));
  EXPECT_THAT(test::read_file(folder / "summary.md"), testing::HasSubstr("**exceeded by 1**"));
}

}  // namespace
}  // namespace mfsdp
