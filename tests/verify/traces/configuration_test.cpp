#include "verify/traces/configuration.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mfsdp::traces {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

Configuration read(const std::string& text) {
  const auto list = read_configurations(text, "run");
  EXPECT_TRUE(list) << list.error().message();
  EXPECT_THAT(*list, SizeIs(1));
  return list->front();
}

/// The byte order mark that some editors write before UTF-8 text.
TEST(ReadConfigurations, AByteOrderMarkIsSkipped) {
  const std::string mark = "\xEF\xBB\xBF";
  EXPECT_TRUE(read(mark + "--use-megatron-fsdp").is_on("use_megatron_fsdp"));
  EXPECT_TRUE(read(mark + "{\"use_megatron_fsdp\": true}").is_on("use_megatron_fsdp"));
}

TEST(ReadConfigurations, FlagsOfACommandLine) {
  const Configuration c = read(R"(
export CUDA_DEVICE_MAX_CONNECTIONS=1
NCCL_DEBUG=WARN torchrun --nproc_per_node 8 pretrain_gpt.py \
  --use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params \
  --no-gradient-accumulation-fusion --ckpt-format=fsdp_dtensor   # --fp16
FSDP_ARGS="--use-nccl-ub --context-parallel-size 2"
)");
  EXPECT_TRUE(c.is_on("use_megatron_fsdp"));
  EXPECT_TRUE(c.is_flag("use_megatron_fsdp"));
  EXPECT_EQ(c.find("data_parallel_sharding_strategy")->value, "optim_grads_params");
  EXPECT_TRUE(c.is_off("gradient_accumulation_fusion"));
  EXPECT_EQ(c.find("ckpt_format"), (Setting{"--ckpt-format", "fsdp_dtensor"}));
  EXPECT_TRUE(c.is_on("nccl_ub"));  // Megatron-LM's flag has another name
  EXPECT_EQ(c.number("context_parallel_size"), 2);
  EXPECT_FALSE(c.is_on("fp16"));
  EXPECT_EQ(c.variable("CUDA_DEVICE_MAX_CONNECTIONS"), "1");
  EXPECT_EQ(c.variable("NCCL_DEBUG"), "WARN");
}

TEST(ReadConfigurations, WhatAShellFillsInIsNotKnown) {
  const Configuration c = read("--tensor-model-parallel-size $TP --seq-length 8192");
  EXPECT_EQ(c.number("tensor_model_parallel_size"), std::nullopt);
  EXPECT_TRUE(c.is_on("tensor_model_parallel_size"));
  EXPECT_EQ(c.number("seq_length"), 8192);
}

TEST(ReadConfigurations, ALaterFlagReplacesAnEarlierOne) {
  const Configuration c = read("--a 1 --a 2 --x --no-x --use-nccl-ub --no-y");
  EXPECT_EQ(c.number("a"), 2);
  EXPECT_FALSE(c.is_on("x"));
  EXPECT_TRUE(c.is_off("x"));
  EXPECT_TRUE(c.is_on("nccl_ub"));
}

TEST(ReadConfigurations, DefaultsOfVariables) {
  const Configuration c = read(R"(A=${A:-1} B=7 C="${B-2}" D=${E:-$F} G=${H}
unset -v B
run --tp ${TP:=4} --cp=${CP:-2} --pp ${PP:?no})");
  EXPECT_EQ(c.variable("A"), "1");
  EXPECT_EQ(c.variable("B"), "");
  EXPECT_EQ(c.variable("C"), "7");
  EXPECT_EQ(c.variable("D"), "${E:-$F}");
  EXPECT_EQ(c.variable("G"), "${H}");
  EXPECT_EQ(c.number("tp"), 4);
  EXPECT_EQ(c.number("cp"), 2);
  EXPECT_EQ(c.number("pp"), std::nullopt);
}

TEST(ReadConfigurations, OverridesWithDots) {
  const Configuration c = read("train.py ddp.nccl_ub=True +ddp.overlap_grad_reduce=false");
  EXPECT_EQ(c.find("nccl_ub"), (Setting{"ddp.nccl_ub", "true"}));
  EXPECT_TRUE(c.is_off("overlap_grad_reduce"));
  EXPECT_FALSE(c.is_flag("nccl_ub"));
}

TEST(ReadConfigurations, NestedJson) {
  const Configuration c = read(R"({"dist": {"use_megatron_fsdp": true},
      "ddp": {"use_megatron_fsdp": false, "bucket_size": null, "nccl_ub": "True"},
      "train": {"global_batch_size": 128}, "env_vars": {"NCCL_NVLS_ENABLE": 0}})");
  EXPECT_EQ(c.where, "run");
  EXPECT_TRUE(c.is_on("use_megatron_fsdp"));
  EXPECT_TRUE(c.is_off("use_megatron_fsdp"));  // at the other place
  EXPECT_FALSE(c.is_on("bucket_size"));
  EXPECT_TRUE(c.is_on("nccl_ub"));
  EXPECT_EQ(c.number("global_batch_size"), 128);
  EXPECT_EQ(c.variable("NCCL_NVLS_ENABLE"), "0");
}

TEST(ReadConfigurations, EachRoleOfVerlByItself) {
  const auto list = read_configurations(R"({"actor_rollout_ref": {
      "actor": {"megatron": {"use_megatron_fsdp": true,
                             "override_ddp_config": {"nccl_ub": true}}},
      "ref": {"megatron": {"use_megatron_fsdp": false}}}})",
                                        "run");
  ASSERT_TRUE(list);
  ASSERT_THAT(*list, SizeIs(2));
  EXPECT_EQ((*list)[0].where, "run: actor_rollout_ref.actor.megatron");
  EXPECT_TRUE((*list)[0].is_on("nccl_ub"));
  EXPECT_FALSE((*list)[1].is_on("nccl_ub"));
}

TEST(ReadConfigurations, BadInputIsOneLine) {
  EXPECT_THAT(read_configurations("  ", "run").error().message(), HasSubstr("run: expected"));
  EXPECT_THAT(read_configurations("hello world", "run").error().message(),
              HasSubstr("run: expected flags"));
  EXPECT_THAT(read_configurations("{\"a\": }", "run").error().message(), HasSubstr("run:1:7: "));
  EXPECT_THAT(read_configurations("{\"a\": 1, \"a\": 2}", "run").error().message(),
              HasSubstr("appears twice"));
  EXPECT_THAT(read_configurations("--x \xff", "run").error().message(), HasSubstr("UTF-8"));
}

}  // namespace
}  // namespace mfsdp::traces
