#include "core/cli/options_file.hpp"

#include <gmock/gmock.h>

#include "core/cli/common_options.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

class OptionsFile : public testing::Test {
 protected:
  /// A file with that content.
  std::string file(const std::string& content) const {
    test::write_file(folder_ / "tuned.toml", content);
    return (folder_ / "tuned.toml").string();
  }

  /// The arguments that the work gets.
  std::vector<std::string> expanded(const std::vector<std::string>& arguments) const {
    std::vector<std::string> got;
    const auto outcome = with_options_file(arguments, [&](const auto& all) -> Result<ExitCode> {
      got = all;
      return ExitCode::good;
    });
    EXPECT_TRUE(outcome.has_value()) << outcome.error().message();
    return got;
  }

  /// The error of the common flags for those arguments; empty if there is none.
  std::string error_of(const std::vector<std::string>& arguments) const {
    const auto outcome = with_options_file(arguments, [](const auto& all) -> Result<ExitCode> {
      CommonOptions options;
      MFSDP_TRY(parse_flags(common_flags(options), all));
      return ExitCode::good;
    });
    return outcome ? "" : outcome.error().message();
  }

  test::ScratchFolder folder_;
};

TEST_F(OptionsFile, FlagsOfTheFileStandBeforeThoseOfTheCommandLine) {
  const std::string path =
      file("model = \"llama_nano\"\nexact-sums = true\nuntold = false\nclip = 0.5\n");
  EXPECT_THAT(expanded({"--options", path, "--gpus", "4"}),
              testing::ElementsAre("--model=llama_nano", "--exact-sums", "--clip=0.5", "--options",
                                   path, "--gpus", "4"));
  EXPECT_THAT(expanded({"--gpus", "4"}), testing::ElementsAre("--gpus", "4"));
}

TEST_F(OptionsFile, AFlagOfTheCommandLineReplacesTheFiles) {
  const std::string path = file("gpus = 8\nmicro-batch = 2\n");
  EXPECT_THAT(expanded({"--options=" + path, "--gpus=4"}),
              testing::ElementsAre("--micro-batch=2", "--options=" + path, "--gpus=4"));
  EXPECT_THAT(expanded({"--options", path, "--world-size", "4"}),
              testing::ElementsAre("--micro-batch=2", "--options", path, "--world-size", "4"));
}

TEST_F(OptionsFile, KeysMayHaveUnderscores) {
  const std::string path = file("micro_batch = 2\nexact_sums = true\n");
  EXPECT_THAT(expanded({"--options", path}),
              testing::ElementsAre("--micro-batch=2", "--exact-sums", "--options", path));
  EXPECT_THAT(expanded({"--options", path, "--micro-batch", "1"}),
              testing::ElementsAre("--exact-sums", "--options", path, "--micro-batch", "1"));
  const std::string twice = file("micro_batch = 2\nmicro-batch = 4\n");
  EXPECT_EQ(error_of({"--options", twice}),
            twice + ":2: micro-batch is there twice: " + twice + ":1 has it too");
}

TEST_F(OptionsFile, MistakesNameFileAndLine) {
  const std::string path = file("gpus = 8\nmicro-batch = 0\n");
  EXPECT_EQ(error_of({"--options", path}),
            path + ":2: --micro-batch: '0' is not in the range from 1 to 1048576");
  EXPECT_EQ(error_of({"--options", path, "--micro-batch", "1"}), "");
  EXPECT_EQ(error_of({"--options", file("microbatch = 1\n")}),
            path +
                ":1: --microbatch: here it is --micro-batch (sequences per GPU and "
                "microbatch)");
  EXPECT_EQ(error_of({"--options", file("micro-bacth = 1\n")}),
            path + ":1: unknown flag '--micro-bacth'; did you mean '--micro-batch'?");
  EXPECT_EQ(error_of({"--options", file("exact-sums = 1\n")}),
            path + ":1: --exact-sums: takes no value");
  EXPECT_EQ(error_of({"--options", file("gpus = [8]\n")}),
            path + ":1: gpus must be text in quotes, a number, true or false");
  EXPECT_EQ(error_of({"--options", file("options = \"x\"\n")}),
            path + ":1: options belongs on the command line");
  EXPECT_EQ(error_of({"--options"}), "--options: needs a value: --options FILE");
  EXPECT_THAT(error_of({"--options", "/nowhere.toml"}), testing::HasSubstr("/nowhere.toml: "));
}

TEST_F(OptionsFile, AllMistakesOfAFileAreNamedAtOnce) {
  const auto mistakes = [this](const std::string& content) {
    const auto outcome =
        with_options_file({"--options", file(content)}, [](const auto& all) -> Result<ExitCode> {
          CommonOptions options;
          MFSDP_TRY(parse_flags(common_flags(options), all));
          return ExitCode::good;
        });
    return outcome ? 0 : 1 + std::ssize(outcome.error().also);
  };
  EXPECT_EQ(mistakes("gpus = [8]\noptions = \"x\"\nclip = {}\n"), 3);
  EXPECT_EQ(mistakes("exact-sums = 1\nmicro-bacth = 1\nmicro-batch = 0\ngpus = true\n"), 4);
}

TEST_F(OptionsFile, WhatIsWrittenIsRead) {
  const std::string text = render_options_file(
      {"Why: it is fast"},
      {{"--model", "a \"b\"\\c"}, {"--micro-batch", "4"}, {"--exact-sums", ""}});
  EXPECT_EQ(
      text,
      "# Why: it is fast\nmodel = \"a \\\"b\\\"\\\\c\"\nmicro-batch = 4\nexact-sums = true\n");
  const std::string path = file(text);
  EXPECT_THAT(expanded({"--options", path}),
              testing::ElementsAre("--model=a \"b\"\\c", "--micro-batch=4", "--exact-sums",
                                   "--options", path));
}

}  // namespace
}  // namespace mfsdp
