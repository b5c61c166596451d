// The help of each tool. tests/golden/*/help.txt holds the flags themselves, on which scripts depend.
#include <gmock/gmock.h>

#include "gpu_backend/tool/exec_options.hpp"
#include "sim/tool/sim_options.hpp"
#include "sim/tool/space_flags.hpp"
#include "sim/tool/sweep.hpp"
#include "verify/tool/verify_options.hpp"

namespace mfsdp {
namespace {

void expect_explained_in_a_hundred_columns(const HelpText& text,
                                           const std::vector<FlagGroup>& groups) {
  for (const FlagGroup& group : groups)
    for (const Flag& flag : group.flags) EXPECT_FALSE(flag.help.empty()) << flag.name;
  const std::string help = render_help(text, groups);
  EXPECT_LT(help.find("Examples:"), help.find("Model and machine:"));
  std::size_t begin = 0;
  for (std::size_t end; (end = help.find('\n', begin)) != std::string::npos; begin = end + 1)
    EXPECT_LE(end - begin, 100u) << help.substr(begin, end - begin);
}

TEST(Help, EveryFlagIsExplainedInAHundredColumns) {
  SimOptions sim;
  expect_explained_in_a_hundred_columns(sim_help(), sim_flags(sim));
  ExecOptions exec;
  expect_explained_in_a_hundred_columns(exec_help(), exec_flags(exec));
  VerifyOptions verify;
  expect_explained_in_a_hundred_columns(verify_help(), verify_flags(verify));
}

/// The lines of the examples, which people copy into a terminal of 80 columns.
void expect_examples_in_eighty_columns(const HelpText& text) {
  const std::string help = render_help(text, {});
  const std::size_t begin = help.find("Examples:");
  for (const std::string& line : split(help.substr(begin, help.find("\n\n", begin) - begin), '\n'))
    EXPECT_LE(line.size(), 80u) << line;
}

TEST(Help, ExamplesFitEightyColumns) {
  expect_examples_in_eighty_columns(sim_help());
  expect_examples_in_eighty_columns(verify_help());
}

TEST(Help, HelpNamesTheFlagsThatTakeLists) {
  const std::string help = render_help(sim_help(), {});
  const std::size_t begin = help.find("\nLists:\n");
  ASSERT_NE(begin, std::string::npos) << help;
  const std::string lists = help.substr(begin, help.find("Exit status:") - begin);
  for (const std::string& flag : swept_flags()) {
    EXPECT_TRUE(lists.find(flag + ",") != std::string::npos ||
                lists.find(flag + " take") != std::string::npos ||
                lists.find(flag + "\n  take") != std::string::npos)
        << flag << " in " << lists;
  }
  EXPECT_EQ(render_help(verify_help(), {}).find("Lists:"), std::string::npos);
}

TEST(Help, VersionNamesBuildAndGpuLibraries) {
  const std::string text = render_version("mfsdp-sim");
  EXPECT_TRUE(text.starts_with("mfsdp-sim " + std::string(version()) + "\n"));
  for (const char* part : {"commit:", "compiler:", "CUDA", "NCCL", "cuDNN"})
    EXPECT_THAT(text, testing::HasSubstr(part));
}

TEST(Help, ExamplesParse) {
  for (const Example& example : sim_help().examples) {
    std::vector<std::string> words = split(example.command, ' ');
    ASSERT_EQ(words.front(), "mfsdp-sim");
    words.erase(words.begin());
    const auto swept = split_lists(words);
    ASSERT_TRUE(swept) << example.command;
    EXPECT_TRUE(parse_sim_options(swept->arguments)) << example.command;
    EXPECT_TRUE(read_space(*swept)) << example.command;
  }
  for (const Example& example : exec_help().examples) {
    std::vector<std::string> words = split(example.command, ' ');
    ASSERT_EQ(words.front(), "mfsdp-exec");
    words.erase(words.begin());
    EXPECT_TRUE(parse_exec_options(words)) << example.command;
  }
  for (const Example& example : verify_help().examples) {
    std::vector<std::string> words = split(example.command, ' ');
    ASSERT_EQ(words.front(), "mfsdp-verify");
    words.erase(words.begin());
    EXPECT_TRUE(parse_verify_options(words)) << example.command;
  }
}

}  // namespace
}  // namespace mfsdp
