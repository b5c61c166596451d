#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/schedule/build.hpp"
#include "sim/engines/engine.hpp"
#include "sim/engines/plan_engine.hpp"
#include "sim/predict/gradient_reductions.hpp"
#include "sim/simulator/awaited.hpp"
#include "tests/sim/engines/recorded_llamas.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;

PlanConfig config_of(std::int64_t microbatches, Strategy strategy = Strategy::optim_grads_params) {
  PlanConfig config;
  config.model = test::llama(256, 512, 2, 4, 2, 1000);
  config.mesh = data_parallel_mesh(1, 8);
  config.seq_len = 128;
  config.strategy = strategy;
  config.microbatches = microbatches;
  return config;
}

std::optional<GradientReductions> of_engine(EngineKind engine, std::int64_t microbatches) {
  const auto config = engine_config(engine, config_of(microbatches));
  EXPECT_TRUE(config) << config.error().message();
  const EnginePlan plan = engine_plan_of(engine, *config, {}, std::int64_t{50} << 20);
  return gradient_reductions(plan.program, *plan.program.find_plan(PlanRole::train));
}

std::optional<GradientReductions> of_ours(Strategy strategy) {
  const auto program = build_program(config_of(3, strategy), {});
  EXPECT_TRUE(program) << program.error().message();
  return gradient_reductions(*program, *program->find_plan(PlanRole::train));
}

TEST(GradientReductionsOf, OneMicrobatchHasNothingToSay) {
  EXPECT_EQ(of_engine(EngineKind::fsdp2, 1), std::nullopt);
}

// FSDP2 reduces in each backward pass; Megatron-Core's buffers are reduced in the last one.
TEST(GradientReductionsOf, EnginesAsTheirPlansHaveIt) {
  using enum GradientReductions;
  for (const std::int64_t microbatches : {2, 3, 8}) {
    for (const EngineKind engine :
         {EngineKind::fsdp2, EngineKind::fsdp2_compile, EngineKind::fsdp2_compile_loss})
      EXPECT_EQ(of_engine(engine, microbatches), every_microbatch) << to_string(engine);
    EXPECT_EQ(of_engine(EngineKind::mcore, microbatches), once_a_step);
  }
}

// Ours: ZeRO-2 and 3 add to sharded gradients in each microbatch, ZeRO-0 and 1 keep whole ones.
TEST(GradientReductionsOf, OurOwnStrategies) {
  using enum GradientReductions;
  EXPECT_EQ(of_ours(Strategy::optim_grads_params), every_microbatch);
  EXPECT_EQ(of_ours(Strategy::optim_grads), every_microbatch);
  EXPECT_EQ(of_ours(Strategy::optim), once_a_step);
  EXPECT_EQ(of_ours(Strategy::no_shard), once_a_step);
}

/// Megatron-Core over tp and cp, of which the first also shares the weights' buffers.
EnginePlan shared_plan(const char* comm) {
  PlanConfig config = config_of(3);
  config.model.kv_heads = 4;
  config.mesh = data_parallel_mesh(1, 1);
  config.mesh.resize(Axis::cp, 2);
  config.mesh.resize(Axis::tp, 2);
  const EngineOptions options = test::engine_options({std::string("cp_comm_type=") + comm});
  return test::plan_of(EngineKind::mcore, config, options);
}

TEST(GradientReductionsOf, SumsOfRowsAreNone) {
  const EnginePlan plan = shared_plan("all_gather");
  EXPECT_EQ(gradient_reductions(plan.program, *plan.program.find_plan(PlanRole::train)),
            GradientReductions::once_a_step);
}

TEST(AwaitedKindsOf, OtherEnginesMoveRowsOverTpAndKeysOverCp) {
  for (const char* comm : {"p2p", "all_gather", "a2a"}) {
    const EnginePlan plan = shared_plan(comm);
    const Plan& train = *plan.program.find_plan(PlanRole::train);
    const AwaitedKinds kinds(plan.program, train);
    const Awaited of_context = comm == std::string("a2a") ? Awaited::heads : Awaited::keys;
    for (const Segment& segment : train.segments)
      for (const Op& op : segment.ops) {
        const auto* made = std::get_if<Collective>(&op.body);
        if (made == nullptr || op.phase == Phase::optimizer) continue;
        const std::string& among = plan.program.communicators[made->communicator.value].purpose;
        const Awaited expected = op.phase == Phase::reduce ? Awaited::gradients
                                 : among == "tensor"       ? Awaited::rows
                                 : among == "context"      ? of_context
                                                           : Awaited::weights;
        EXPECT_EQ(kinds.of(op, *made), expected) << op.name;
      }
  }
}

TEST(ReductionStatement, SaysWhatWasAssumedAndWhatOthersDo) {
  // 14.84e9 * 2 / 2^30 = 27.64 GiB.
  const std::string text =
      reduction_statement(EngineKind::fsdp2, GradientReductions::every_microbatch, 14'840'000'000);
  EXPECT_THAT(text, HasSubstr("assumed: fsdp2 reduces gradients in every microbatch"));
  EXPECT_THAT(text, HasSubstr("Hugging Face's Trainer"));
  EXPECT_THAT(text, HasSubstr("27.6 GiB in bf16, 55.3 in fp32"));
  EXPECT_THAT(reduction_statement(EngineKind::mcore, GradientReductions::once_a_step, 1),
              HasSubstr("assumed: mcore reduces gradients once a step"));
}

}  // namespace
}  // namespace mfsdp
