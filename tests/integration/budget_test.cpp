// Budgets from outside: a run over its budget by the smallest amount, for every limit.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string>
#include <vector>

#include "tests/support/samples.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;

const fs::path kTools = fs::path(MFSDP_BINARY_DIR) / "sim";
const fs::path kSource = MFSDP_SOURCE_DIR;

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
      "cd '{}' && PATH='{}':\"$PATH\" "
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
  test::Sample sample;
  for (const Line& limit : limits) {
    if (!sample.takes_next() || limit.value == 0) continue;  // nothing is below it
    std::vector<std::string> tight = lines;
    std::string& line = tight[limit.number - 1];
    line = line.substr(0, line.find(" = ")) + fmt::format(" = {}", limit.value - 1);
    test::write_file(file, joined(tight));
    const ScriptRun outcome = run_bash(folder, command);
    EXPECT_EQ(outcome.status, 1) << limit.key;
    EXPECT_THAT(outcome.err,
                testing::StartsWith(fmt::format("mfsdp-sim: budget.toml:{}: ", limit.number)));
    EXPECT_THAT(outcome.err, testing::ContainsRegex(", limit [0-9][^:]*: 1( B| ns)? .*over\n"));
  }
}

}  // namespace
}  // namespace mfsdp
