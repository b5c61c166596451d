// Scripts depend on these names. Adding one is free; renaming or removing one needs an alias and a
// CHANGELOG entry.
#include <gmock/gmock.h>

#include "gpu_backend/tool/exec_options.hpp"
#include "sim/tool/sim_options.hpp"
#include "sim/tool/space_flags.hpp"
#include "verify/tool/verify_options.hpp"

namespace mfsdp {
namespace {

const std::vector<std::string> common_names{"--model",
                                            "--gpus",
                                            "--world-size",
                                            "--gpu",
                                            "--gpus-per-node",
                                            "--cluster",
                                            "--strategy",
                                            "--outer-dp",
                                            "--outer-strategy",
                                            "--seq-len",
                                            "--micro-batch",
                                            "--global-batch",
                                            "--ep",
                                            "--capacity-factor",
                                            "--expert-strategy",
                                            "--recompute",
                                            "--prefetch",
                                            "--grad-slots",
                                            "--allocator",
                                            "--logits-chunk",
                                            "--layout",
                                            "--placement",
                                            "--gather",
                                            "--reduce",
                                            "--keep-gathered",
                                            "--param-dtype",
                                            "--main-dtype",
                                            "--grad-dtype",
                                            "--reduce-dtype",
                                            "--optimizer",
                                            "--clip",
                                            "--freeze",
                                            "--state-dtype",
                                            "--lr-scale",
                                            "--no-decay",
                                            "--loss-scale",
                                            "--loss-scale-window",
                                            "--lora-rank",
                                            "--lora-alpha",
                                            "--lora-targets",
                                            "--deterministic",
                                            "--exact-sums",
                                            "--document-mask",
                                            "--lora-dropout",
                                            "--options",
                                            "--plan",
                                            "--plan-out",
                                            "--output",
                                            "--db",
                                            "--no-save",
                                            "--name",
                                            "--trace",
                                            "--memory-trace",
                                            "--help",
                                            "--help-format",
                                            "--version"};

TEST(FlagSurface, CommonFlags) {
  CommonOptions options;
  EXPECT_THAT(flag_names(common_flags(options)), testing::ElementsAreArray(common_names));
}

TEST(FlagSurface, MfsdpSim) {
  SimOptions options;
  std::vector<std::string> names = common_names;
  names.insert(
      names.end(),
      {"--network-gbps",       "--power-limit",    "--tables",          "--attention",
       "--memory-reserve",     "--host-launch-us", "--routing",         "--jitter",
       "--slow-rank",          "--seed",           "--by-rank",         "--find",
       "--tune-out",           "--tokens",         "--price",           "--require-fit",
       "--allow-within-error", "--explain",        "--budget",          "--allow-incomparable",
       "--budget-out",         "--list-models",    "--list-gpus",       "--list-clusters",
       "--fidelity",           "--published",      "--anchor",          "--calibrate",
       "--calibrate-out",      "--engine",         "--compare-engines", "--replay",
       "--alloc-conf",         "--memory-limit",   "--memory-snapshot"});
  EXPECT_THAT(flag_names(sim_flags(options)), testing::ElementsAreArray(names));
}

TEST(FlagSurface, MfsdpExec) {
  ExecOptions options;
  std::vector<std::string> names = common_names;
  names.insert(names.end(), {"--backend",
                             "--dry-run",
                             "--deadline",
                             "--nproc",
                             "--nnodes",
                             "--node-rank",
                             "--master",
                             "--insecure-rendezvous",
                             "--attention",
                             "--gemm-search",
                             "--gemm-cache",
                             "--data",
                             "--tokenizer",
                             "--chat-template",
                             "--pack",
                             "--document-end",
                             "--epochs",
                             "--steps",
                             "--lr",
                             "--lr-schedule",
                             "--min-lr",
                             "--warmup",
                             "--decay-steps",
                             "--weight-decay",
                             "--beta1",
                             "--beta2",
                             "--adam-epsilon",
                             "--momentum",
                             "--seed",
                             "--init-from",
                             "--export",
                             "--init-adapters",
                             "--export-adapters",
                             "--eval-every",
                             "--eval-data",
                             "--eval-batches",
                             "--logits",
                             "--log-every",
                             "--log-param-norms",
                             "--check-nan",
                             "--save",
                             "--save-every",
                             "--keep-saves",
                             "--resume",
                             "--chaos",
                             "--poison",
                             "--delay-op",
                             "--fault"});
  EXPECT_THAT(flag_names(exec_flags(options)), testing::ElementsAreArray(names));
}

TEST(FlagSurface, MfsdpVerify) {
  VerifyOptions options;
  std::vector<std::string> names = common_names;
  for (const char* gone : {"--db", "--no-save", "--name", "--trace", "--memory-trace"})
    std::erase(names, gone);
  names.insert(names.end(),
               {"--expand", "--certificate", "--check", "--mutate", "--mutate-fields",
                "--mutate-pairs", "--per-field", "--mutants", "--mutant", "--mutant-out", "--seed",
                "--kineto", "--flight-recorder", "--nccl-inspector", "--config", "--run", "--bugs",
                "--env", "--list-rules"});
  EXPECT_THAT(flag_names(verify_flags(options)), testing::ElementsAreArray(names));
}

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

TEST(FlagSurface, EveryFlagIsExplainedInAHundredColumns) {
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

TEST(FlagSurface, ExamplesFitEightyColumns) {
  expect_examples_in_eighty_columns(sim_help());
  expect_examples_in_eighty_columns(verify_help());
}

TEST(FlagSurface, HelpNamesTheFlagsThatTakeLists) {
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

TEST(FlagSurface, VersionNamesBuildAndGpuLibraries) {
  const std::string text = render_version("mfsdp-sim");
  EXPECT_TRUE(text.starts_with("mfsdp-sim " + std::string(version()) + "\n"));
  for (const char* part : {"commit:", "compiler:", "CUDA", "NCCL", "cuDNN"})
    EXPECT_THAT(text, testing::HasSubstr(part));
}

TEST(FlagSurface, ExamplesParse) {
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
