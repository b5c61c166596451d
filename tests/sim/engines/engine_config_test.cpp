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
      {"--main-dtype", [](PlanConfig& c) { c.main_dtype = DType::bf16; }},
      {"--grad-dtype", [](PlanConfig& c) { c.grad_dtype = DType::bf16; }},
      {"--reduce-dtype", [](PlanConfig& c) { c.reduce_dtype = DType::fp16; }},
      {"--optimizer", [](PlanConfig& c) { c.optimizer = Optimizer::muon; }},
      {"--recompute", [](PlanConfig& c) { c.recompute = {Recompute::full, 1}; }},
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

}  // namespace
}  // namespace mfsdp
