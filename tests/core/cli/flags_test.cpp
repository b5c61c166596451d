#include "core/cli/flags.hpp"

#include <gtest/gtest.h>

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
  EXPECT_EQ(error_of({"--tp", "8"}), "--tp: tensor parallelism is not modelled (docs/limits.md)");
  EXPECT_EQ(error_of({"--tensor-model-parallel-size=8"}),
            "--tensor-model-parallel-size: tensor parallelism is not modelled (docs/limits.md)");
  EXPECT_EQ(error_of({"--pipeline_parallel", "8"}),
            "--pipeline_parallel: pipeline parallelism is not modelled (docs/limits.md)");
  for (const char* flag :
       {"--pp", "--cp", "--context-parallel", "--sequence-parallel", "--qlora", "--fp8",
        "--cpu-offload", "-tp", "--optimizer-offload", "--quantization"})
    EXPECT_TRUE(error_of({flag, "2"}).ends_with(" not modelled (docs/limits.md)"))
        << error_of({flag, "2"});
  EXPECT_EQ(error_of({"--zero-stage", "3"}),
            "--zero-stage: ask by --strategy, such as --strategy zero3");
  EXPECT_EQ(error_of({"--expert-parallel", "8"}),
            "--expert-parallel: ask by --ep, such as --ep 8 (docs/experts.md)");
  EXPECT_EQ(error_of({"--lora", "8"}),
            "--lora: ask by --lora-rank, such as --lora-rank 16 (docs/lora.md)");
  EXPECT_EQ(error_of({"--expert-parallel", "8"}),
            "--expert-parallel: ask by --ep, such as --ep 8 (docs/experts.md)");
  EXPECT_EQ(error_of({"--dp", "8"}),
            "--dp: every GPU is data-parallel: --gpus says how many there are, --outer-dp how many "
            "groups");
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

TEST(Flags, TextMustBeUtf8ButPathsNeedNot) {
  EXPECT_EQ(error_of({"--model", "\xff"}), "--model: '?' is not UTF-8");
  EXPECT_EQ(error_of({"--db", "\xff"}), "no error");
}

}  // namespace
}  // namespace mfsdp
