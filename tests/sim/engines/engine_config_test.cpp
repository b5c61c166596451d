#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "sim/engines/engine.hpp"
#include "tests/sim/engines/recorded_llamas.hpp"

namespace mfsdp {
namespace {

PlanConfig possible() {
  PlanConfig config;
  config.model = test::llama(256, 512, 2, 4, 2, 1000);
  config.mesh = data_parallel_mesh(1, 8);
  config.seq_len = 1024;
  return config;
}

TEST(EngineConfig, OursTakesEverything) {
  PlanConfig config = possible();
  config.strategy = Strategy::optim;
  EXPECT_EQ(engine_config(EngineKind::mfsdp, config), config);
}

TEST(EngineConfig, SelectiveRecomputationIsNone) {
  const auto own = engine_config(EngineKind::fsdp2, possible());
  ASSERT_TRUE(own);
  EXPECT_EQ(own->recompute.kind, Recompute::none);
  EXPECT_EQ(own->logits_chunk, 1024);
}

TEST(EngineConfig, RefusesWhatItCannotDo) {
  struct Case {
    std::string flag;
    std::function<void(PlanConfig&)> change;
  };
  const std::vector<Case> cases{
      {"--strategy", [](PlanConfig& c) { c.strategy = Strategy::optim; }},
      {"--strategy", [](PlanConfig& c) { c.strategy = Strategy::no_shard; }},
      {"--outer-strategy",
       [](PlanConfig& c) {
         c.mesh = data_parallel_mesh(2, 4);
         c.outer_strategy = Strategy::optim;
       }},
      {"--param-dtype", [](PlanConfig& c) { c.param_dtype = DType::fp16; }},
      {"--grad-dtype", [](PlanConfig& c) { c.grad_dtype = DType::bf16; }},
      {"--reduce-dtype", [](PlanConfig& c) { c.reduce_dtype = DType::fp16; }},
      {"--optimizer", [](PlanConfig& c) { c.optimizer = Optimizer::muon; }},
      {"--freeze", [](PlanConfig& c) { c.frozen = {"embed"}; }},
      {"--lora-rank", [](PlanConfig& c) { c.lora_rank = 8; }},
      {"--document-mask", [](PlanConfig& c) { c.document_mask = true; }},
      {"--model", [](PlanConfig& c) { c.model.family = Family::gpt2; }},
      {"--model", [](PlanConfig& c) { c.model.logit_cap = {30, 1}; }},
      {"--model", [](PlanConfig& c) {
         c.model.sliding_window = 512;
         c.model.sliding_layers = {0};
       }}};
  for (const Case& wrong : cases) {
    PlanConfig config = possible();
    wrong.change(config);
    const auto own = engine_config(EngineKind::fsdp2_compile, config);
    ASSERT_FALSE(own) << wrong.flag;
    EXPECT_EQ(own.error().where, wrong.flag);
    EXPECT_NE(own.error().what.find("--engine fsdp2-compile"), std::string::npos);
  }
}

std::string refusal(EngineKind engine, const PlanConfig& config) {
  const auto own = engine_config(engine, config);
  EXPECT_FALSE(own);
  return own ? "" : own.error().message();
}

TEST(EngineConfig, ARefusalNamesAllItsReasons) {
  PlanConfig config = possible();
  config.model.experts = 8;
  config.grad_dtype = DType::bf16;
  config.optimizer = Optimizer::lion;
  const auto own = engine_config(EngineKind::fsdp2, config);
  ASSERT_FALSE(own);
  std::vector<std::string> flags{own.error().where};
  for (const Error& other : own.error().also) flags.push_back(other.where);
  EXPECT_EQ(flags, (std::vector<std::string>{"--model", "--grad-dtype", "--optimizer"}));
}

// A reader knows what is not predicted, and what to ask instead.
TEST(EngineConfig, RefusalsArePlain) {
  PlanConfig experts = possible();
  experts.model.experts = 8;
  EXPECT_EQ(
      refusal(EngineKind::fsdp2, experts),
      "--model: --engine fsdp2 cannot be predicted with mixtures of experts yet; leave --engine "
      "out, take mcore or, for Qwen3 and DeepSeek, --modules torchtitan");
  // mcore does not have OLMoE's blocks either.
  experts.model.family = Family::olmoe;
  EXPECT_EQ(
      refusal(EngineKind::fsdp2, experts),
      "--model: --engine fsdp2 cannot be predicted with mixtures of experts yet; leave --engine "
      "out");
  PlanConfig other = possible();
  other.model.family = Family::gpt2;
  EXPECT_EQ(refusal(EngineKind::ddp, other),
            "--model: --engine ddp cannot be predicted with GPT's blocks yet; take mcore, fsdp1 or "
            "fsdp2, or leave --engine out");
  other.model.family = Family::deepseek;
  EXPECT_EQ(
      refusal(EngineKind::ddp, other),
      "--model: --engine ddp cannot be predicted with models of the family deepseek yet; it is "
      "predicted for Llama, Mistral, Qwen2 and Qwen3; leave --engine out for others");
  PlanConfig replicated = possible();
  replicated.strategy = Strategy::no_shard;
  EXPECT_EQ(refusal(EngineKind::fsdp2, replicated),
            "--strategy: --engine fsdp2 shards gradients, states and parameters: always "
            "(optim_grads_params), or parameters outside forward and backward only (optim_grads)");
}

TEST(EngineConfig, WeightsInBf16SayWhatIsAssumed) {
  PlanConfig config = possible();
  config.main_dtype = DType::bf16;
  for (const EngineKind engine : {EngineKind::megatron_fsdp_v2, EngineKind::mcore}) {
    const std::string text = refusal(engine, config);
    EXPECT_NE(text.find("assumes 16 bytes a parameter"), std::string::npos) << text;
    EXPECT_NE(text.find("model.to(bfloat16)"), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace mfsdp
