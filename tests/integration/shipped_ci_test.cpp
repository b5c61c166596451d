// The jobs of scenarios/ci, run as GitHub and GitLab run them, with the lines of the YAML.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kTree = MFSDP_SOURCE_DIR;
const fs::path kJobs = kTree / "scenarios" / "ci";
const std::string kShippedBudget = "scenarios/ci/llama3_8b_64xh100.toml";

struct JobStep {
  std::string name;
  std::string script;
};

std::vector<std::string> yaml_lines(const fs::path& file) {
  std::vector<std::string> lines;
  std::istringstream in(test::read_file(file));
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::size_t depth_of(const std::string& line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

/// GitHub: the `run:` steps with their names: `- name: ...` and then `run: command` or a block
/// under `run: |`.
std::vector<JobStep> github_steps(const std::vector<std::string>& lines) {
  std::vector<JobStep> steps;
  std::string name;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string line = lines[i].substr(depth_of(lines[i]));
    if (line.starts_with("- name: ")) name = line.substr(8);
    if (!line.starts_with("run: ")) continue;
    JobStep step{.name = name, .script = line.substr(5) + "\n"};
    if (line == "run: |") {
      step.script.clear();
      const std::size_t outer = depth_of(lines[i]);
      for (; i + 1 < lines.size() && depth_of(lines[i + 1]) > outer; ++i)
        step.script += lines[i + 1].substr(std::min(outer + 2, lines[i + 1].size())) + "\n";
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

/// GitLab: the lists `before_script:` and `script:`, a step each.
std::vector<JobStep> gitlab_steps(const std::vector<std::string>& lines) {
  std::vector<JobStep> steps;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string line = lines[i].substr(depth_of(lines[i]));
    if (line != "before_script:" && line != "script:") continue;
    JobStep step{.name = line.substr(0, line.size() - 1), .script = ""};
    for (; i + 1 < lines.size() && lines[i + 1].find("- ") == depth_of(lines[i + 1]) &&
           depth_of(lines[i + 1]) > depth_of(line);
         ++i)
      step.script += lines[i + 1].substr(depth_of(lines[i + 1]) + 2) + "\n";
    steps.push_back(std::move(step));
  }
  return steps;
}

struct StepRun {
  int status = 0;
  std::string err;
};

/// Runs the steps one after another until one fails, with the built tools on PATH, in a folder that
/// holds scenarios/ as a checkout does.
StepRun run_steps_in(const test::ScratchFolder& folder, const std::vector<std::string>& scripts) {
  if (!fs::exists(folder / "scenarios"))
    fs::create_directory_symlink(kTree / "scenarios", folder / "scenarios");
  StepRun outcome;
  for (const std::string& script : scripts) {
    test::write_file(folder / "script.sh", script);
    const std::string command = fmt::format(
        "cd '{0}' && PATH='{1}/sim':'{1}/reports':\"$PATH\" GITHUB_STEP_SUMMARY=summary.md "
        "bash --noprofile --norc -eo pipefail script.sh >>out 2>err",
        folder.path().string(), MFSDP_BINARY_DIR);
    const int status = std::system(command.c_str());  // NOLINT(cert-env33-c): the test's own words
    outcome = {.status = WEXITSTATUS(status), .err = test::read_file(folder / "err")};
    if (outcome.status != 0) break;
  }
  return outcome;
}

/// The scripts with the shipped budget replaced by another file.
std::vector<std::string> with_budget_file(std::vector<std::string> scripts,
                                          const std::string& file) {
  bool found = false;
  for (std::string& script : scripts)
    if (const std::size_t at = script.find(kShippedBudget); at != std::string::npos) {
      script.replace(at, kShippedBudget.size(), file);
      found = true;
    }
  EXPECT_TRUE(found);
  return scripts;
}

/// The shipped budget, one byte tighter.
std::string tight_budget() {
  std::string budget = test::read_file(kTree / kShippedBudget);
  const std::string key = "\nallocated_bytes = ";
  const std::size_t begin = budget.find(key) + key.size();
  const std::size_t end = budget.find('\n', begin);
  const std::int64_t limit = std::stoll(budget.substr(begin, end - begin));
  return budget.replace(begin, end - begin, std::to_string(limit - 1));
}

/// The steps that predict and check, after a look at those that a test cannot run: what they call
/// is there, and they build what the others use.
std::vector<std::string> github_scripts() {
  const std::vector<JobStep> steps = github_steps(yaml_lines(kJobs / "mfsdp-budget.yml"));
  EXPECT_EQ(steps.size(), 4U);
  EXPECT_EQ(steps.at(0).script, "scripts/install-dependencies\n");
  EXPECT_EQ(steps.at(1).script,
            "scripts/build release --target mfsdp-sim mfsdp-report\n"
            "echo \"$PWD/build/release/sim\" >> \"$GITHUB_PATH\"\n"
            "echo \"$PWD/build/release/reports\" >> \"$GITHUB_PATH\"\n");
  for (const char* script : {"install-dependencies", "build"})
    EXPECT_TRUE(fs::exists(kTree / "scripts" / script)) << script;
  return {steps.at(2).script, steps.at(3).script};
}

std::vector<std::string> gitlab_scripts() {
  const std::vector<JobStep> steps = gitlab_steps(yaml_lines(kJobs / "mfsdp-budget.gitlab-ci.yml"));
  EXPECT_EQ(steps.size(), 2U);
  EXPECT_EQ(steps.at(0).name, "before_script");
  EXPECT_THAT(steps.at(0).script,
              HasSubstr("scripts/build release --target mfsdp-sim mfsdp-report"));
  EXPECT_EQ(steps.at(1).name, "script");
  return {steps.at(1).script};
}

TEST(ShippedWorkflow, ItPassesAndLeavesSummaryAndFiles) {
  const test::ScratchFolder folder;
  const StepRun outcome = run_steps_in(folder, github_scripts());
  EXPECT_EQ(outcome.status, 0);
  EXPECT_EQ(outcome.err, "");
  const std::string summary = test::read_file(folder / "summary.md");
  EXPECT_THAT(summary, HasSubstr("| llama3_8b | h100 | 64 |"));
  EXPECT_THAT(summary, HasSubstr("pass (8 pass of 8 limits)"));
  EXPECT_THAT(test::read_file(folder / "budget_of_this_run.toml"), HasSubstr("allocated_bytes = "));
  EXPECT_THAT(test::read_file(folder / "budget.xml"), HasSubstr("tests=\"8\" failures=\"0\""));
  EXPECT_THAT(test::read_file(folder / "budget.sarif"), HasSubstr("\"version\": \"2.1.0\""));
}

TEST(ShippedWorkflow, OneByteTooManyFailsAtTheBudgetsLine) {
  const test::ScratchFolder folder;
  test::write_file(folder / "tight.toml", tight_budget());
  const StepRun outcome = run_steps_in(folder, with_budget_file(github_scripts(), "tight.toml"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err,
              HasSubstr("mfsdp-report: tight.toml:10: Allocated memory 34,768,170,496 B, limit "
                        "34,768,170,495: 1 B (<0.1 %) over\n"));
  EXPECT_THAT(outcome.err,
              HasSubstr("::error file=tight.toml,line=10,title=mfsdp budget%3A allocated::"));
  EXPECT_THAT(test::read_file(folder / "summary.md"), HasSubstr("**fail: 1 B (<0.1 %) over**"));
  EXPECT_THAT(test::read_file(folder / "budget.sarif"), HasSubstr("\"startLine\": 10"));
}

TEST(ShippedGitlabJob, PassesAndFailsByOneByte) {
  const test::ScratchFolder folder;
  EXPECT_EQ(run_steps_in(folder, gitlab_scripts()).status, 0);
  EXPECT_THAT(test::read_file(folder / "budget.xml"), HasSubstr("tests=\"8\" failures=\"0\""));
  test::write_file(folder / "tight.toml", tight_budget());
  const StepRun outcome = run_steps_in(folder, with_budget_file(gitlab_scripts(), "tight.toml"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(test::read_file(folder / "budget.xml"), HasSubstr("tests=\"8\" failures=\"1\""));
}

TEST(ShippedJobs, ABudgetOfAnotherModelFails) {
  const test::ScratchFolder folder;
  std::string budget = test::read_file(kTree / kShippedBudget);
  budget.replace(budget.find("llama3_8b\""), 9, "llama2_7b");
  test::write_file(folder / "other.toml", budget);
  const StepRun outcome = run_steps_in(folder, with_budget_file(gitlab_scripts(), "other.toml"));
  EXPECT_EQ(outcome.status, 1);
  EXPECT_THAT(outcome.err, HasSubstr("is not comparable: another model, cluster or cost model"));
}

}  // namespace
}  // namespace mfsdp
