// Widths end to end: a terminal wraps, a pipe never does, and neither loses a number.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <sstream>
#include <string>
#include <vector>

#include "core/cli/flags.hpp"
#include "core/cli/format.hpp"
#include "tests/support/run_in_terminal.hpp"
#include "tests/support/run_tool.hpp"
#include "tests/support/samples.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

/// The tools with arguments whose text is wide.
std::vector<std::string> wide_commands() {
  const std::string sim = "'" + test::kSim.string() + "' ";
  const std::string verify = "'" + test::kVerify.string() + "' ";
  return {
      sim + "--model llama_tiny --gpus 16 --no-save --explain memory",
      sim + "--model llama_tiny --gpus 16 --no-save --explain layout",
      sim + "--model llama_tiny --gpus 16 --no-save --explain critical-path",
      sim + "--model llama_tiny --gpus 8,16 --micro-batch 1,2 --no-save --tokens 1B --price 2.5",
      sim + "--model llama_tiny --gpus 8 --find fastest --micro-batch 1 --no-save",
      sim + "--list-gpus",
      sim + "--list-clusters",
      sim + "--list-models",
      sim + "--fidelity",
      sim + "--help",
      verify + "--list-rules",
      verify + "--model llama_nano --seq-len 16 --gpus 2",
      verify + "--help"};
}

std::size_t widest(const std::string& text) {
  std::size_t widest = 0;
  for (const std::string& line : split(text, '\n')) widest = std::max(widest, display_width(line));
  return widest;
}

/// The words that hold a digit, sorted. Records repeat the titles of their table.
std::vector<std::string> numbers(const std::string& text) {
  std::vector<std::string> all;
  std::istringstream words(text);
  for (std::string word; words >> word;)
    if (word.find_first_of("0123456789") != std::string::npos) all.push_back(word);
  std::ranges::sort(all);
  return all;
}

TEST(Terminal, WrapsToItsWidthAndLosesNoNumber) {
  test::Sample sample;
  for (const std::string& command : wide_commands()) {
    if (!sample.takes_next()) continue;
    const std::string piped = test::run_shell("NO_COLOR=1 LC_ALL=C COLUMNS=72 " + command).out;
    const std::string shown = test::run_in_terminal(command, 72);
    EXPECT_FALSE(shown.empty()) << command;
    EXPECT_LE(widest(shown), 72U) << command << "\n" << shown;
    const bool has_clock = command.find("mfsdp-verify' --model") != std::string::npos;
    EXPECT_TRUE(has_clock || std::ranges::includes(numbers(shown), numbers(piped))) << command;
    for (const std::string& line : split(piped, '\n'))
      EXPECT_FALSE(line.ends_with("...")) << command << "\n" << line;
  }
}

TEST(Terminal, ANarrowOneGetsRecordsWithEveryValue) {
  const std::string command = wide_commands()[3];
  const std::string shown = test::run_in_terminal(command, 50);
  EXPECT_LE(widest(shown), 50U) << shown;
  EXPECT_THAT(shown, HasSubstr("micro-batch   1\n"));
  EXPECT_TRUE(std::ranges::includes(numbers(shown), numbers(test::run_shell(command).out)));
}

/// A line of a step stays whole: it is a log's, and one of many.
TEST(Terminal, WhatARunSaysBesideItsStepsWrapsToo) {
  const std::string data = MFSDP_SOURCE_DIR "/scenarios/texts/jargon.txt";
  const std::string command = "'" + test::kExec.string() + "' --backend cpu --model llama_nano " +
                              "--seq-len 16 --steps 2 --no-save --data '" + data + "'";
  for (const std::uint16_t columns : std::array<std::uint16_t, 2>{72, 50}) {
    const std::string shown = test::run_in_terminal(command, columns);
    EXPECT_THAT(shown, HasSubstr("memory of a rank"));
    EXPECT_THAT(shown, HasSubstr("model_weight"));
    std::string beside;
    for (const std::string& line : split(shown, '\n'))
      if (!line.starts_with("step: ")) beside += line + "\n";
    EXPECT_LE(widest(beside), columns) << beside;
  }
}

TEST(Terminal, ColumnsWinsOverTheTerminal) {
  const std::string command = "COLUMNS=60 '" + test::kSim.string() + "' --list-clusters";
  EXPECT_LE(widest(test::run_in_terminal(command, 200)), 60U);
}

TEST(Terminal, APipeHasNoWidth) {
  const std::string command = "COLUMNS=60 '" + test::kSim.string() + "' --list-clusters";
  EXPECT_GT(widest(test::run_shell(command).out), 60U);
}

}  // namespace
}  // namespace mfsdp
