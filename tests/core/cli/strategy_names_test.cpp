#include "core/cli/strategy_names.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace mfsdp {
namespace {

Strategy strategy_of(std::string_view text) {
  const auto named = parse_strategy(text);
  EXPECT_TRUE(named) << text;
  return named ? named->strategy : Strategy::optim;
}

TEST(StrategyNames, OfStagesPyTorchAndDeepSpeed) {
  for (const char* name : {"no_shard", "NO_SHARD", "0", "zero0", "ZeRO-0", "ddp", "DDP"})
    EXPECT_EQ(strategy_of(name), Strategy::no_shard) << name;
  for (const char* name : {"optim", "1", "zero1", "zero-1", "zero_1"})
    EXPECT_EQ(strategy_of(name), Strategy::optim) << name;
  for (const char* name : {"optim_grads", "2", "zero2", "shard_grad_op", "SHARD_GRAD_OP"})
    EXPECT_EQ(strategy_of(name), Strategy::optim_grads) << name;
  for (const char* name :
       {"optim_grads_params", "3", "zero3", "ZeRO-3", "fsdp", "full_shard", "full-shard"})
    EXPECT_EQ(strategy_of(name), Strategy::optim_grads_params) << name;
  for (const char* name : {"", "4", "zero", "zero4", "zero3+", "shard"})
    EXPECT_FALSE(parse_strategy(name)) << name;
}

// A word for an engine is none for a strategy of ours: both are named.
TEST(StrategyNames, EnginesAreNoStrategies) {
  struct Case {
    const char* word;
    const char* engine;
    const char* strategy;
  };
  for (const Case& each : {Case{"fsdp2", "--engine fsdp2", "optim_grads_params"},
                           Case{"FSDP-2", "--engine fsdp2", "optim_grads_params"},
                           Case{"torchtitan", "--engine fsdp2-compile-loss", "optim_grads_params"},
                           Case{"megatron_fsdp", "--engine megatron-fsdp-v1", "optim_grads_params"},
                           Case{"megatron", "--engine mcore", "--strategy optim"},
                           Case{"DeepSpeed", "--engine deepspeed-zero1", "zero3"},
                           Case{"fsdp2-compile", "--engine fsdp2-compile", "optim_grads_params"},
                           Case{"mcore", "--engine mcore", "optim_grads_params"}}) {
    EXPECT_FALSE(parse_strategy(each.word)) << each.word;
    EXPECT_THAT(engine_meant(each.word), testing::HasSubstr(each.engine));
    EXPECT_THAT(engine_meant(each.word), testing::HasSubstr(each.strategy));
  }
  EXPECT_EQ(engine_meant("zero3"), "");
  EXPECT_EQ(engine_meant("nonsense"), "");
}

TEST(StrategyNames, HybridOnesHaveGroups) {
  for (const char* name : {"hsdp", "HYBRID_SHARD"}) {
    EXPECT_EQ(strategy_of(name), Strategy::optim_grads_params);
    EXPECT_EQ(parse_strategy(name)->outer, Strategy::no_shard);
  }
  EXPECT_EQ(strategy_of("_hybrid_shard_zero2"), Strategy::optim_grads);
  EXPECT_EQ(parse_strategy("hfsdp")->outer, Strategy::optim);
  EXPECT_FALSE(parse_strategy("fsdp")->outer);
}

std::string text_of(Strategy strategy, Mesh mesh, Strategy outer = Strategy::no_shard) {
  PlanConfig config;
  config.strategy = strategy;
  config.mesh = mesh;
  config.outer_strategy = outer;
  return strategy_text(config);
}

TEST(StrategyNames, TextSaysWhatTheFieldCallsIt) {
  using enum Strategy;
  EXPECT_EQ(text_of(optim_grads_params, data_parallel_mesh(1, 8)), "optim_grads_params (ZeRO-3)");
  EXPECT_EQ(text_of(optim_grads, data_parallel_mesh(2, 4)), "optim_grads (ZeRO-2), HSDP 2 x 4");
  EXPECT_EQ(text_of(optim_grads_params, data_parallel_mesh(2, 4), optim),
            "optim_grads_params (ZeRO-3), HFSDP 2 x 4");
}

TEST(StrategyNames, WhatShardsNothingIsNotHsdp) {
  using enum Strategy;
  EXPECT_EQ(text_of(no_shard, data_parallel_mesh(1, 8)), "no_shard (DDP)");
  EXPECT_EQ(text_of(no_shard, data_parallel_mesh(2, 4)), "no_shard (DDP), 2 x 4, nothing sharded");
  EXPECT_EQ(text_of(optim_grads_params, data_parallel_mesh(8, 1)),
            "optim_grads_params (ZeRO-3), 8 x 1, nothing sharded");
}

}  // namespace
}  // namespace mfsdp
