#include "core/plan/fp8.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

PlanConfig in_fp8() { return test::fp8_config(1, 4); }

std::string error_with(const std::function<void(PlanConfig&)>& change) {
  PlanConfig config = in_fp8();
  change(config);
  const Result<void> outcome = check_fp8(config);
  return outcome ? "no error" : outcome.error().message();
}

TEST(Fp8Config, SaysInOneLineWhatCannotBe) {
  EXPECT_EQ(error_with([](PlanConfig&) {}), "no error");
  EXPECT_EQ(error_with([](PlanConfig& c) { c.fp8 = Fp8Recipe::off, c.fp8_keep_bf16 = 1; }),
            "--fp8-keep-bf16: expected --fp8 too: without it all blocks are in bf16");
  EXPECT_EQ(error_with([](PlanConfig& c) {
              c.fp8 = Fp8Recipe::off, c.fp8_accumulate = Fp8Accumulate::fast;
            }),
            "--fp8-accumulate: expected --fp8 too: without it there are no FP8 GEMMs");
  EXPECT_EQ(error_with([](PlanConfig& c) { c.exact_sums = true; }),
            "--exact-sums: expected none with --fp8: a scale depends on all tokens that a rank "
            "casts at once, so that results depend on how tokens are divided");
  EXPECT_EQ(error_with([](PlanConfig& c) { c.param_dtype = DType::fp16; }),
            "--fp8: expected off with other --param-dtype than bf16, got current");
  EXPECT_EQ(error_with([](PlanConfig& c) { c.lora_rank = 4; }),
            "--fp8: expected off with --lora-rank (GEMMs of adapters have no FP8 form), got "
            "current");
  EXPECT_EQ(error_with([](PlanConfig& c) { c.model.experts = 4; }),
            "--fp8: expected off with experts (grouped GEMMs have no FP8 form), got current");
  EXPECT_EQ(error_with([](PlanConfig& c) { c.model.qkv_bias = true; }),
            "--fp8: expected off with a model whose linear layers have biases, got current");
  EXPECT_EQ(error_with([](PlanConfig& c) { c.seq_len = 24, c.micro_batch = 1; }),
            "--fp8: expected sizes that are multiples of 16, got 24 tokens of a microbatch "
            "(--micro-batch x --seq-len)");
  EXPECT_EQ(error_with([](PlanConfig& c) { c.model.layers = 2, c.fp8_keep_bf16 = 1; }),
            "--fp8-keep-bf16: expected at most 0, so that some of the model's 2 blocks are in FP8, "
            "got 1");
}

TEST(Fp8Config, SaysWhatARecipeDoesNotHave) {
  EXPECT_EQ(error_with([](PlanConfig& c) { c.fp8_history = 16; }),
            "--fp8-history: expected --fp8 delayed, whose scales are of earlier steps, got --fp8 "
            "current");
  EXPECT_EQ(
      error_with([](PlanConfig& c) { c.fp8 = Fp8Recipe::off, c.fp8_amax = Fp8Amax::most_recent; }),
      "--fp8-amax: expected --fp8 delayed, whose scales are of earlier steps, got --fp8 off");
  EXPECT_EQ(error_with([](PlanConfig& c) {
              c.fp8 = Fp8Recipe::delayed, c.fp8_history = 1, c.fp8_amax = Fp8Amax::most_recent;
            }),
            "no error");
  EXPECT_EQ(
      error_with(
          [](PlanConfig& c) { c.fp8 = Fp8Recipe::mxfp8, c.fp8_accumulate = Fp8Accumulate::fast; }),
      "--fp8-accumulate: expected none with --fp8 mxfp8: sums of a block are added up in fp32");
  EXPECT_EQ(error_with([](PlanConfig& c) { c.fp8 = Fp8Recipe::mxfp8; }),
            "--fp8: expected sizes that are multiples of 32, got 48 intermediate size");
  EXPECT_EQ(error_with([](PlanConfig& c) { c.fp8 = Fp8Recipe::blockwise, c.micro_batch = 1; }),
            "--fp8: expected sizes that are multiples of 128, got 32 hidden size");
  for (const Fp8Recipe recipe : {Fp8Recipe::blockwise, Fp8Recipe::mxfp8, Fp8Recipe::nvfp4})
    EXPECT_TRUE(check_fp8(test::block_config(recipe))) << to_string(recipe);
}

TEST(Fp8Config, HistoriesHaveAColumnForEachTensorOfABlockInFp8) {
  PlanConfig config = in_fp8();
  config.fp8 = Fp8Recipe::delayed;
  EXPECT_EQ(amax_history::slots(config), 1024);
  EXPECT_EQ(amax_history::tensors(config), 48);
  config.fp8_history = 2;
  config.fp8_keep_bf16 = 1;
  EXPECT_EQ(amax_history::elements(config), (2 + 2) * 24);
}

TEST(Fp8Config, KeepsFirstAndLastBlocks) {
  PlanConfig config = in_fp8();
  config.model.layers = 5;
  config.fp8_keep_bf16 = 2;
  for (std::int64_t block = 0; block < 5; ++block) EXPECT_EQ(config.has_fp8(block), block == 2);
  config.fp8 = Fp8Recipe::off;
  EXPECT_FALSE(config.has_fp8(2));
}

}  // namespace
}  // namespace mfsdp
