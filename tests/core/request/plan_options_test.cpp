#include "core/request/plan_options.hpp"

#include <gtest/gtest.h>

#include <functional>

namespace mfsdp {
namespace {

ModelShape small_model() {
  return {.vocab = 256,
          .hidden = 64,
          .layers = 4,
          .heads = 4,
          .kv_heads = 2,
          .head_dim = 16,
          .intermediate = 128,
          .max_seq_len = 512,
          .rope_scaling = {}};
}

/// The options with that configuration, `change`d from the default.
CommonOptions with(const std::function<void(PlanConfig&)>& change) {
  CommonOptions options;
  change(options.config);
  return options;
}

std::string plan_error_of(const CommonOptions& options) {
  const auto config = make_plan_config(options, small_model());
  return config ? "no error" : config.error().message();
}

TEST(PlanOptions, DefaultsComeFromTheModel) {
  const auto config = make_plan_config(CommonOptions{}, small_model());
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(config->seq_len, 512);  // min(8192, 512)
  EXPECT_EQ(config->mesh, (data_parallel_mesh(1, 8)));
  EXPECT_EQ(config->microbatches, 1);
  ModelShape longer = small_model();
  longer.max_seq_len = 131'072;
  EXPECT_EQ(make_plan_config(CommonOptions{}, longer)->seq_len, 8192);
}

TEST(PlanOptions, WindowsStayInOneNode) {
  CommonOptions options = with([](PlanConfig& c) { c.gather = Transport::copy_engine; });
  EXPECT_EQ(plan_error_of(options), "no error");
  options.gpus = 16;
  EXPECT_EQ(plan_error_of(options),
            "--gather: expected nccl where 16 GPUs share the shards on nodes of 8: copy_engine "
            "reaches the GPUs of one node (--outer-dp makes groups)");
  options.outer_dp = 2;
  EXPECT_EQ(plan_error_of(options), "no error");
}

TEST(PlanOptions, MeshFromGpusAndGroups) {
  CommonOptions options{.gpus = 64, .outer_dp = 8};
  EXPECT_EQ(make_plan_config(options, small_model())->mesh, (data_parallel_mesh(8, 8)));
  options.outer_dp = 6;
  EXPECT_EQ(plan_error_of(options), "--outer-dp: 6 does not divide --gpus 64");
}

TEST(PlanOptions, NodesAreWholeOrOne) {
  EXPECT_EQ(count_nodes(3, 8, "--gpus"), 1);
  EXPECT_EQ(count_nodes(8, 8, "--gpus"), 1);
  EXPECT_EQ(count_nodes(64, 8, "--gpus"), 8);
  EXPECT_EQ(plan_error_of({.gpus = 12}),
            "--gpus: 12 GPUs do not fill nodes of 8 (--gpus-per-node); expected at most 8 or a "
            "multiple of it: the nearest are 8 and 16");
  EXPECT_EQ(plan_error_of({.gpus = 12, .gpus_per_node = 4}), "no error");
  // The file states the size of its nodes; its reader checks it.
  EXPECT_EQ(plan_error_of({.gpus = 12, .cluster = "c.toml"}), "no error");
}

TEST(PlanOptions, MicrobatchesFromTheGlobalBatch) {
  CommonOptions options{.gpus = 8, .global_batch = 80};
  options.config.micro_batch = 2;
  EXPECT_EQ(make_plan_config(options, small_model())->microbatches, 5);  // 80 / (2 * 8)
  options.global_batch = 85;
  EXPECT_EQ(plan_error_of(options),
            "--global-batch: 85 is not a multiple of --micro-batch 2 times --gpus 8; the nearest "
            "are 80 and 96");
  options.global_batch = 15;
  EXPECT_EQ(plan_error_of(options),
            "--global-batch: 15 is not a multiple of --micro-batch 2 times --gpus 8; the smallest "
            "is 16");
}

TEST(PlanOptions, AGlobalBatchInTokens) {
  // 8k sequences of 64 tokens are 2^19 tokens; on 8 GPUs each has 1,024 of them.
  CommonOptions options{.gpus = 8, .seq_len = 64, .batch_tokens = std::int64_t{1} << 19};
  EXPECT_EQ(make_plan_config(options, small_model())->microbatches, 1024);
  options.batch_tokens = 1000;
  EXPECT_EQ(plan_error_of(options),
            "--global-batch: 1000 tokens are not a whole number of sequences of 64 tokens (a "
            "number without k or M counts sequences)");
}

TEST(PlanOptions, IndependentReasonsComeTogether) {
  CommonOptions options{.gpus = 12, .gpus_per_node = 8, .outer_dp = 5, .global_batch = 13};
  const auto config = make_plan_config(options, small_model());
  ASSERT_FALSE(config);
  std::vector<std::string> wheres{config.error().where};
  for (const Error& other : config.error().also) wheres.push_back(other.where);
  EXPECT_EQ(wheres, (std::vector<std::string>{"--gpus", "--outer-dp", "--global-batch"}));
}

TEST(PlanOptions, HfsdpNeedsGroupsToShardOver) {
  EXPECT_EQ(plan_error_of(with([](PlanConfig& c) { c.outer_strategy = Strategy::optim; })),
            "--outer-strategy: optim (HFSDP) needs --outer-dp 2 or more: it shards over the "
            "groups");
}

TEST(PlanOptions, EqualMeaningsGiveEqualConfigurations) {
  const auto full = [](std::int64_t blocks) {
    return with(
        [=](PlanConfig& c) { c.recompute = {.kind = Recompute::full, .full_blocks = blocks}; });
  };
  EXPECT_EQ(*make_plan_config(full(4), small_model()), *make_plan_config(full(0), small_model()));
  const auto frozen = make_plan_config(
      with([](PlanConfig& c) { c.frozen = {"norm", "embed", "norm"}; }), small_model());
  ASSERT_TRUE(frozen) << frozen.error().message();
  EXPECT_EQ(frozen->frozen, (std::vector<std::string>{"embed", "norm"}));
}

TEST(PlanOptions, EveryFieldOfTheOptionsReachesTheConfiguration) {
  CommonOptions options{.gpus = 16, .outer_dp = 2, .seq_len = 128, .global_batch = 96};
  options.config.strategy = Strategy::optim;
  options.config.micro_batch = 2;
  options.config.recompute = {.kind = Recompute::full, .full_blocks = 1};
  options.config.param_dtype = DType::fp16;
  options.config.main_dtype = DType::fp16;
  options.config.grad_dtype = DType::bf16;
  options.config.reduce_dtype = DType::bf16;
  options.config.layout = LayoutRule::megatron_fsdp;
  options.config.prefetch = 2;
  options.config.grad_slots = 3;
  options.config.allocator = AllocatorPolicy::trace_pool;
  options.config.optimizer = Optimizer::sgd;
  options.config.clip = {1, 2};
  options.config.deterministic = true;
  options.config.frozen = {"embed"};
  options.config.logits_chunk = 64;
  options.config.placement = CollectivePlacement::attention;
  options.config.keep_gathered = 3;
  PlanConfig expected = options.config;
  expected.model = small_model();
  expected.mesh = data_parallel_mesh(2, 8);
  expected.seq_len = 128;
  expected.microbatches = 3;         // 96 / (2 * 16)
  expected.loss_scale = {65536, 1};  // default with fp16 weights
  expected.loss_scale_window = 2000;
  const auto config = make_plan_config(options, small_model());
  ASSERT_TRUE(config) << config.error().message();
  EXPECT_EQ(*config, expected);
}

TEST(PlanOptions, ExactSumsReachTheConfigurationAndNeedFp32) {
  CommonOptions options;
  options.config.exact_sums = true;
  EXPECT_TRUE(make_plan_config(options, small_model())->exact_sums);
  options.config.reduce_dtype = DType::bf16;
  EXPECT_EQ(plan_error_of(options), "--reduce-dtype: expected fp32 with --exact-sums, got bf16");
}

TEST(PlanOptions, LogitsAreCutIntoFiniteParts) {
  // 512 * 64 = 32768 tokens: 16384 parts of 2, 32768 of 1.
  CommonOptions options;
  options.config.micro_batch = 64;
  options.config.logits_chunk = 2;
  EXPECT_EQ(plan_error_of(options), "no error");
  options.config.logits_chunk = 1;
  EXPECT_EQ(plan_error_of(options),
            "--logits-chunk: 1 cuts the 32768 tokens of a microbatch (64 x 512 of --micro-batch "
            "and --seq-len) into more "
            "than 16384 parts; use at least 2, or a smaller --micro-batch");
}

TEST(PlanOptions, WhatTheModelForbidsNamesTheFlag) {
  for (const auto& [options, flag] : std::vector<std::pair<CommonOptions, std::string>>{
           {{.seq_len = 513}, "--seq-len"},
           {with([](PlanConfig& c) { c.recompute = {.kind = Recompute::full, .full_blocks = 5}; }),
            "--recompute"},
           {with([](PlanConfig& c) { c.frozen = {"no_such_parameter"}; }), "--freeze"}}) {
    const auto config = make_plan_config(options, small_model());
    ASSERT_FALSE(config) << flag;
    EXPECT_EQ(config.error().where, flag) << config.error().message();
  }
}

}  // namespace
}  // namespace mfsdp
