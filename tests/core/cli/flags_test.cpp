#include "core/cli/flags.hpp"

#include <gtest/gtest.h>

#include "core/plan/engine.hpp"

namespace mfsdp {
namespace {

struct Parsed {
  std::int64_t gpus = 8;
  std::optional<std::int64_t> seq_len;
  std::string model;
  std::optional<std::string> db;
  bool quick = false;
  Strategy strategy = Strategy::optim_grads_params;
};

std::vector<FlagGroup> groups_of(Parsed& p) {
  return {{.title = "All",
           .flags = {integer_flag("--gpus", "", p.gpus, {.lowest = 1, .highest = 64}),
                     integer_flag("--seq-len", "", p.seq_len, {.lowest = 1}),
                     text_flag("--model", "NAME", "", p.model), path_flag("--db", "", p.db),
                     switch_flag("--quick", "", p.quick),
                     choice_flag("--strategy", "S", "", p.strategy)}}};
}

std::string error_of(const std::vector<std::string>& args) {
  Parsed parsed;
  const auto given = parse_flags(groups_of(parsed), args);
  return given ? "no error" : given.error().message();
}

TEST(Flags, BothFormsOfValues) {
  Parsed parsed;
  const auto given = parse_flags(groups_of(parsed), {"--gpus", "16", "--model=a=b", "--quick"});
  ASSERT_TRUE(given);
  EXPECT_EQ(*given, (std::vector<std::string>{"--gpus", "--model", "--quick"}));
  EXPECT_EQ(parsed.gpus, 16);
  EXPECT_EQ(parsed.model, "a=b");
  EXPECT_TRUE(parsed.quick);
  EXPECT_FALSE(parsed.seq_len);
}

TEST(Flags, UnknownAndAbbreviatedFlagsNameTheClosest) {
  EXPECT_EQ(error_of({"--modle", "x"}), "unknown flag '--modle'; did you mean '--model'?");
  EXPECT_EQ(error_of({"--mod", "x"}), "unknown flag '--mod'; did you mean '--model'?");
  EXPECT_EQ(error_of({"--mod=x"}), "unknown flag '--mod'; did you mean '--model'?");
  EXPECT_EQ(error_of({"--seq_len", "1"}), "unknown flag '--seq_len'; did you mean '--seq-len'?");
  EXPECT_EQ(error_of({"--GPUS", "1"}), "unknown flag '--GPUS'; did you mean '--gpus'?");
  EXPECT_EQ(error_of({"-gpus", "1"}), "unknown flag '-gpus'; did you mean '--gpus'?");
}

TEST(Flags, FormErrors) {
  EXPECT_EQ(error_of({"--model"}), "--model: needs a value: --model NAME");
  EXPECT_EQ(error_of({"--model="}), "--model: needs a value: --model NAME");
  EXPECT_EQ(error_of({"--model", "--gpus", "8"}), "--model: needs a value: --model NAME");
  EXPECT_EQ(error_of({"--model", "--nope"}), "--model: needs a value: --model NAME");
  EXPECT_EQ(error_of({"--model", ""}), "--model: the value is empty");
  EXPECT_EQ(error_of({"--quick=1"}), "--quick: takes no value");
  EXPECT_EQ(error_of({"llama"}),
            "unexpected argument 'llama'; everything is given by flags, see --help");
  EXPECT_EQ(error_of({"--", "--gpus"}), "'--' before '--gpus' ends the flags: leave it out");
}

TEST(Flags, TheLastOfSeveralCounts) {
  Parsed parsed;
  const auto groups = groups_of(parsed);
  const auto given = parse_flags(groups, {"--gpus", "8,16", "--model", "a", "--gpus=32"});
  ASSERT_TRUE(given) << given.error().message();  // what is overridden is not read
  EXPECT_EQ(parsed.gpus, 32);
  EXPECT_EQ(notes_on(groups, *given),
            std::vector<std::string>{"--gpus is given 2 times; the last one counts"});
}

TEST(Flags, WhatIsNotModelledSaysSo) {
  EXPECT_EQ(
      error_of({"--mesh-order", "tp-cp-ep-dp-pp"}),
      "--mesh-order: another order of ranks than tp, cp, dp, from neighbours on, is not modelled "
      "(docs/reference/limits.md)");
  EXPECT_EQ(error_of({"--cpu-offload=8"}),
            "--cpu-offload: offloading is not modelled (docs/reference/limits.md)");
  for (const char* flag : {"--rank_order", "--mxfp4", "--cpu-offload", "-int8",
                           "--optimizer-offload", "--quantization"})
    EXPECT_TRUE(error_of({flag, "2"}).ends_with(" not modelled (docs/reference/limits.md)"))
        << error_of({flag, "2"});
}

TEST(Flags, AFlagOfTheSameMeaningGoesBeforeOneOfTheSameSpelling) {
  EXPECT_EQ(error_of({"--seq-length", "8"}),
            "--seq-length: here it is --seq-len (tokens of a sequence)");
  EXPECT_EQ(error_of({"--zero-stage", "3"}), "--zero-stage: here it is --strategy (such as zero3)");
  EXPECT_EQ(error_of({"--nodes", "3"}),
            "--nodes: here it is --gpus (GPUs of all nodes: nodes x --gpus-per-node)");
  // Flags of ours that these groups lack.
  EXPECT_EQ(error_of({"--learning_rate", "1e-4"}),
            "--learning_rate: mfsdp-exec has --lr (learning rate)");
  EXPECT_EQ(error_of({"--expert-parallel", "8"}),
            "--expert-parallel: mfsdp-sim has --ep (ranks that share the experts, such as --ep 8; "
            "docs/guide/experts.md)");
  EXPECT_EQ(error_of({"--context_parallel_degree", "8"}),
            "--context_parallel_degree: mfsdp-sim has --cp (ranks that share each sequence, such "
            "as --cp 4; docs/guide/parallel.md)");
  for (const std::string flag : {"--pp", "--pipeline_parallel", "--pipeline-model-parallel-size"})
    EXPECT_EQ(error_of({flag, "8"}),
              flag +
                  ": mfsdp-sim has --pp (stages of a pipeline, such as --pp 4; "
                  "docs/guide/pipelines.md)");
  for (const std::string flag : {"--tensor-model-parallel-size", "--sequence-parallel"})
    EXPECT_EQ(error_of({flag, "8"}),
              flag +
                  ": mfsdp-sim has --tp (ranks that share each block's weights, with sequence "
                  "parallelism, such as --tp 8; docs/guide/tensor_parallel.md)");
}

TEST(Flags, WhatResemblesNoFlagHasNoSuggestion) {
  EXPECT_EQ(error_of({"--frobnicate", "x"}), "unknown flag '--frobnicate'; --help lists all flags");
  EXPECT_EQ(error_of({"--xy", "x"}), "unknown flag '--xy'; --help lists all flags");
}

TEST(Flags, ARefusalNamesAllItsReasons) {
  Parsed parsed;
  const auto given = parse_flags(
      groups_of(parsed), {"--modle", "x", "--gpus", "many", "--int8=2", "--strategy", "no"});
  ASSERT_FALSE(given);
  std::vector<std::string> reasons{given.error().message()};
  for (const Error& other : given.error().also) reasons.push_back(other.message());
  EXPECT_EQ(reasons, (std::vector<std::string>{
                         "unknown flag '--modle'; did you mean '--model'?",
                         "--int8: MXFP4 and integers are not modelled (docs/reference/limits.md)",
                         "--gpus: 'many' is not a whole number from 1 to 64",
                         "--strategy: 'no' is not one of no_shard, optim, optim_grads or "
                         "optim_grads_params"}));
}

TEST(Flags, AValueOfTheSameMeaningIsNamed) {
  EngineKind engine = EngineKind::mfsdp;
  const std::vector<FlagGroup> groups{
      {.title = "All", .flags = {choice_flag("--engine", "E", "", engine)}}};
  const auto given = parse_flags(groups, {"--engine", "torchtitan"});
  ASSERT_FALSE(given);
  EXPECT_EQ(given.error().message(),
            "--engine: 'torchtitan' is not one of " + name_list<EngineKind>() +
                "; torchtitan trains with PyTorch FSDP2 and compiled blocks: fsdp2-compile");
}

TEST(Flags, ShortHelp) {
  bool help = false;
  const std::vector<FlagGroup> groups{{.title = "All", .flags = {switch_flag("--help", "", help)}}};
  EXPECT_TRUE(parse_flags(groups, {"-h"}));
  EXPECT_TRUE(help);
  EXPECT_EQ(error_of({"-x"}).find("unknown flag '-x'"), 0u);
}

TEST(Flags, NumbersNameFlagAndRange) {
  EXPECT_EQ(error_of({"--gpus", "many"}), "--gpus: 'many' is not a whole number from 1 to 64");
  EXPECT_EQ(error_of({"--gpus", "1e3"}), "--gpus: '1e3' is not a whole number from 1 to 64");
  EXPECT_EQ(error_of({"--gpus", "+8"}), "--gpus: '+8' is not a whole number from 1 to 64");
  EXPECT_EQ(error_of({"--gpus", "-5"}), "--gpus: '-5' is not in the range from 1 to 64");
  EXPECT_EQ(error_of({"--gpus", "0"}), "--gpus: '0' is not in the range from 1 to 64");
  EXPECT_EQ(error_of({"--gpus", "9223372036854775808"}),
            "--gpus: '9223372036854775808' is not in the range from 1 to 64");
  EXPECT_EQ(error_of({"--gpus", "8 "}), "--gpus: '8 ' is not a whole number from 1 to 64");
}

TEST(Flags, ChoicesAreListed) {
  EXPECT_EQ(error_of({"--strategy", "zero3"}),
            "--strategy: 'zero3' is not one of no_shard, optim, optim_grads or optim_grads_params");
}

TEST(Flags, ChoicesMayHaveLettersOfAnyCase) {
  Parsed parsed;
  EXPECT_TRUE(parse_flags(groups_of(parsed), {"--strategy", "Optim_Grads"}));
  EXPECT_EQ(parsed.strategy, Strategy::optim_grads);
  EXPECT_EQ(parse_choice<EngineKind>("MFSDP1", "--engine"), EngineKind::megatron_fsdp_v1);
}

TEST(Flags, TextMustBeUtf8ButPathsNeedNot) {
  EXPECT_EQ(error_of({"--model", "\xff"}), "--model: '?' is not UTF-8");
  EXPECT_EQ(error_of({"--db", "\xff"}), "no error");
}

}  // namespace
}  // namespace mfsdp
