#include "core/cli/common_options.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

Result<CommonOptions> parse_common(const std::vector<std::string>& args) {
  CommonOptions options;
  const std::vector<FlagGroup> groups = common_flags(options);
  MFSDP_LET(given, parse_flags(groups, args));
  options.notes = notes_on(groups, given);
  MFSDP_TRY(check_common(options, groups, given));
  return options;
}

CommonOptions parsed(const std::vector<std::string>& args) {
  const auto options = parse_common(args);
  EXPECT_TRUE(options) << options.error().message();
  return options.value_or(CommonOptions{});
}

std::string common_error_of(const std::vector<std::string>& args) {
  const auto options = parse_common(args);
  return options ? "no error" : options.error().message();
}

TEST(CommonOptions, DefaultsAreThoseOfTheContract) {
  const CommonOptions o = parsed({});
  EXPECT_EQ(o.gpus, 8);
  EXPECT_EQ(o.gpu, "h100");
  EXPECT_EQ(o.node_size(), 8);
  EXPECT_FALSE(o.cluster);
  EXPECT_EQ(o.config.strategy, Strategy::optim_grads_params);
  EXPECT_EQ(o.outer_dp, 1);
  EXPECT_EQ(o.config.outer_strategy, Strategy::no_shard);
  EXPECT_FALSE(o.seq_len);
  EXPECT_EQ(o.config.micro_batch, 1);
  EXPECT_FALSE(o.global_batch);
  EXPECT_EQ(o.config.recompute, (RecomputePolicy{.kind = Recompute::selective, .full_blocks = 0}));
  EXPECT_EQ(o.config.param_dtype, DType::bf16);
  EXPECT_EQ(o.config.main_dtype, DType::fp32);
  EXPECT_EQ(o.config.grad_dtype, DType::fp32);
  EXPECT_EQ(o.config.reduce_dtype, DType::fp32);
  EXPECT_EQ(o.config.layout, LayoutRule::packed);
  EXPECT_EQ(o.config.prefetch, 1);
  EXPECT_EQ(o.config.grad_slots, 2);
  EXPECT_EQ(o.config.allocator, AllocatorPolicy::best_fit);
  EXPECT_EQ(o.config.optimizer, Optimizer::adamw);
  EXPECT_EQ(o.config.clip, (Rational{1, 1}));
  EXPECT_FALSE(o.config.deterministic);
  EXPECT_FALSE(o.config.exact_sums);
  EXPECT_EQ(o.output, OutputFormat::text);
  EXPECT_EQ(o.store_path(), "mfsdp.sqlite");
}

TEST(CommonOptions, StrategiesByNameAndStage) {
  EXPECT_EQ(parsed({"--strategy", "0"}).config.strategy, Strategy::no_shard);
  EXPECT_EQ(parsed({"--strategy", "2"}).config.strategy, Strategy::optim_grads);
  EXPECT_EQ(parsed({"--strategy", "optim"}).config.strategy, Strategy::optim);
  EXPECT_EQ(parsed({"--outer-strategy", "optim", "--outer-dp", "2"}).config.outer_strategy,
            Strategy::optim);
  EXPECT_EQ(common_error_of({"--strategy", "4"}),
            "--strategy: '4' is not one of no_shard, optim, optim_grads or optim_grads_params, nor "
            "0 to 3, zero0 to zero3, ddp, fsdp, full_shard, shard_grad_op, hsdp or hfsdp");
  EXPECT_EQ(common_error_of({"--outer-strategy", "3"}),
            "--outer-strategy: '3' is not one of no_shard (HSDP) or optim (HFSDP)");
}

TEST(CommonOptions, HybridStrategiesAskForTheirGroups) {
  EXPECT_EQ(common_error_of({"--model", "x", "--strategy", "hsdp"}),
            "--strategy: hsdp needs --outer-dp, the number of groups that replicate: the number of "
            "nodes, where each node is a group");
  EXPECT_EQ(common_error_of({"--model", "x", "--strategy", "hfsdp", "--outer-dp", "2",
                             "--outer-strategy", "no_shard"}),
            "--outer-strategy: no_shard contradicts --strategy hfsdp");
  EXPECT_EQ(parsed({"--strategy", "hsdp", "--outer-dp", "2"}).config.outer_strategy,
            Strategy::no_shard);
  EXPECT_EQ(parsed({"--strategy", "hfsdp", "--outer-dp", "2"}).config.outer_strategy,
            Strategy::optim);
  // A hybrid one that is overridden asks for nothing.
  EXPECT_EQ(parsed({"--strategy", "hsdp", "--strategy", "zero2"}).config.strategy,
            Strategy::optim_grads);
}

TEST(CommonOptions, LengthsAndCountsInWords) {
  EXPECT_EQ(parsed({"--seq-len", "8k"}).seq_len, 8192);
  EXPECT_EQ(parsed({"--seq-len", "128K"}).seq_len, 131072);
  EXPECT_EQ(common_error_of({"--seq-len", "99m"}),
            "--seq-len: '103809024' is not in the range from 1 to 16777216");
}

TEST(CommonOptions, TheLastOfARepeatedFlagCountsAndIsNoted) {
  const CommonOptions o = parsed({"--gpus", "8", "--gpus", "64", "--gpus", "16", "--no-save",
                                  "--no-save", "--freeze", "a", "--freeze", "b"});
  EXPECT_EQ(o.gpus, 16);
  EXPECT_EQ(o.config.frozen, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(o.notes, (std::vector<std::string>{"--gpus is given 3 times; the last one counts"}));
}

TEST(CommonOptions, WorldSizeIsGpus) {
  EXPECT_EQ(parsed({"--world-size", "64"}).gpus, 64);
  EXPECT_EQ(parsed({"--world-size", "64", "--gpus", "64"}).gpus, 64);
  EXPECT_EQ(common_error_of({"--gpus", "8", "--world-size", "16"}),
            "--world-size: 16 contradicts --gpus 8; they mean the same");
}

TEST(CommonOptions, Fp8ByTheWordsOfOtherTools) {
  for (const char* word : {"current", "tensorwise", "Hybrid"})
    EXPECT_EQ(parsed({"--fp8", word}).config.fp8, Fp8Recipe::current) << word;
  EXPECT_EQ(parsed({"--fp8", "current", "--fp8", "off"}).config.fp8, Fp8Recipe::off);
  EXPECT_EQ(parsed({"--fp8", "delayed", "--fp8-history", "16"}).config.fp8_history, 16);
  EXPECT_EQ(parsed({"--fp8", "delayed", "--fp8-amax", "most_recent"}).config.fp8_amax,
            Fp8Amax::most_recent);
  for (const Fp8Recipe recipe :
       {Fp8Recipe::delayed, Fp8Recipe::blockwise, Fp8Recipe::mxfp8, Fp8Recipe::nvfp4})
    EXPECT_EQ(parsed({"--fp8", to_string(recipe).data()}).config.fp8, recipe);
  EXPECT_EQ(
      common_error_of({"--fp8", "rowwise"}),
      "--fp8: 'rowwise' is not modelled: expected current, delayed (a scale for each tensor), "
      "blockwise, mxfp8 or nvfp4 (for each block)");
  EXPECT_EQ(common_error_of({"--fp8", "on"}),
            "--fp8: 'on' is not one of off, current, delayed, blockwise, mxfp8 or nvfp4");
}

TEST(CommonOptions, Recompute) {
  EXPECT_EQ(parsed({"--recompute", "full:4"}).config.recompute,
            (RecomputePolicy{.kind = Recompute::full, .full_blocks = 4}));
  EXPECT_EQ(parsed({"--recompute", "None"}).config.recompute.kind, Recompute::none);
  for (const char* wrong : {"full:", "full:0", "full:-1", "full:x"})
    EXPECT_EQ(common_error_of({"--recompute", wrong}),
              "--recompute: '" + std::string(wrong) +
                  "': the K of full:K must be a whole number of blocks, 1 or more");
  EXPECT_EQ(common_error_of({"--recompute", "all"}),
            "--recompute: 'all' is not one of none, selective, full or full:K; full recomputes "
            "whole blocks, selective their norms and activations");
}

TEST(CommonOptions, ClipIsExact) {
  EXPECT_EQ(parsed({"--clip", "0.1"}).config.clip, (Rational{1, 10}));
  EXPECT_EQ(parsed({"--clip", "0"}).config.clip, (Rational{0, 1}));
  EXPECT_EQ(parsed({"--clip", "0.12345678901234567"}).config.clip,  // 18 digits
            (Rational{12345678901234567, 100000000000000000}));
  for (const char* wrong : {"-1", "nan", "1e99", "1e-30", "one"})
    EXPECT_EQ(common_error_of({"--clip", wrong}),
              "--clip: '" + std::string(wrong) +
                  "' is not a number of 0 (no clipping) or more with at most 18 digits (written "
                  "without an exponent)");
}

TEST(CommonOptions, DtypesAreFloats) {
  EXPECT_EQ(parsed({"--reduce-dtype", "BF16"}).config.reduce_dtype, DType::bf16);
  EXPECT_EQ(common_error_of({"--param-dtype", "int32"}),
            "--param-dtype: 'int32' is not one of bf16, fp16, fp32 or fp64");
}

TEST(CommonOptions, FreezeIsAListAndRepeats) {
  EXPECT_EQ(parsed({"--freeze", "embed,norm", "--freeze", "head"}).config.frozen,
            (std::vector<std::string>{"embed", "norm", "head"}));
  for (const char* wrong : {",", "a,,b", "a,"})
    EXPECT_EQ(
        common_error_of({"--freeze", wrong}),
        "--freeze: '" + std::string(wrong) + "' is not a comma list of parts of parameter names");
}

TEST(CommonOptions, Contradictions) {
  EXPECT_EQ(common_error_of({"--plan", "p.json", "--model", "x"}),
            "--model: contradicts --plan, whose file decides it");
  EXPECT_EQ(common_error_of({"--plan", "p.json", "--strategy", "1"}),
            "--strategy: contradicts --plan, whose file decides it");
  EXPECT_EQ(common_error_of({"--plan", "p.json", "--gpu", "h200"}), "no error");
  EXPECT_EQ(common_error_of({"--model", "x", "--no-save", "--db", "a"}),
            "--no-save: contradicts --db");
  EXPECT_EQ(common_error_of({"--model", "x", "--gpu", "h200", "--cluster", "c.toml"}),
            "--cluster: contradicts --gpu; the cluster's file names its GPU");
  EXPECT_EQ(common_error_of({"--plan", "p.json", "--cluster", "c.toml"}), "no error");
  EXPECT_EQ(common_error_of({"--model", "x", "--outer-strategy", "no_shard"}), "no error");
}

TEST(CommonOptions, ErrorsNameTheFlagThatWasGiven) {
  const auto said = [](const std::string& where, const std::string& what,
                       const std::vector<std::string>& arguments) {
    return in_given_flags(Error{.where = where, .what = what}, arguments).message();
  };
  EXPECT_EQ(said("--gpus", "12 do not fill --gpus-per-node 8", {"--world-size", "12"}),
            "--world-size: 12 do not fill --gpus-per-node 8");
  EXPECT_EQ(said("--outer-dp", "3 does not divide --gpus 8", {"--world-size=8"}),
            "--outer-dp: 3 does not divide --world-size 8");
  EXPECT_EQ(said("--world-size", "too many", {"--gpus", "1024"}), "--gpus: too many");
  EXPECT_EQ(said("--gpus", "too many", {}), "--gpus: too many");
  const std::string both = "16 contradicts --gpus 8; they mean the same";
  EXPECT_EQ(said("--world-size", both, {"--gpus", "8", "--world-size", "16"}),
            "--world-size: " + both);
  EXPECT_EQ(said("", "unknown flag '--world-sizes'; did you mean '--world-size'?", {"--gpus", "8"}),
            "unknown flag '--world-sizes'; did you mean '--world-size'?");
}

}  // namespace
}  // namespace mfsdp
