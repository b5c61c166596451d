// Plans that cast weights once a step and gather the casts: proof and checker accept what the
// planner builds, and refuse magnitudes, casts and gathers of other weights, shards or steps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/support/checked.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/edit_plan.hpp"

namespace mfsdp {
namespace {

using test::EditedPlan;
using testing::HasSubstr;

PlanConfig gathering_config(std::int64_t ranks = 2) {
  PlanConfig config = test::fp8_config(ranks);
  config.fp8_gather = true;
  return config;
}

void expect_right_gather(const PlanConfig& config) {
  const auto program = build_program(config, {});
  ASSERT_TRUE(program) << program.error().message();
  EXPECT_EQ(test::first_proof_error(*program), "");
  EXPECT_EQ(test::checker_refusal(*program), "");
}

TEST(Fp8Gathers, AreRight) {
  for (const std::int64_t ranks : {1, 2, 4})
    for (const Strategy strategy : {Strategy::no_shard, Strategy::optim, Strategy::optim_grads,
                                    Strategy::optim_grads_params}) {
      SCOPED_TRACE(testing::Message() << ranks << " ranks, " << to_string(strategy));
      PlanConfig config = gathering_config(ranks);
      config.strategy = strategy;
      config.microbatches = ranks == 4 ? 3 : 1;
      config.recompute.kind = static_cast<Recompute>(ranks / 2);
      config.clip = {.num = ranks % 2};
      expect_right_gather(config);
    }
}

TEST(Fp8Gathers, OfOtherModelsAndSettingsAreRight) {
  for (const auto& change : std::vector<std::function<void(PlanConfig&)>>{
           [](PlanConfig& c) { c.fp8_keep_bf16 = 1, c.model.layers = 3; },
           [](PlanConfig& c) { c.mesh = data_parallel_mesh(2, 2); },
           [](PlanConfig& c) {
             c.mesh.dense = {{Axis::dp_shard, 2}, {Axis::cp, 2}};
             c.model.heads = c.model.kv_heads = 2;
             c.seq_len *= 2;
             c.model.max_seq_len = std::max(c.model.max_seq_len, c.seq_len);
           },
           [](PlanConfig& c) { c.main_dtype = DType::bf16; },
           [](PlanConfig& c) { c.state_dtype = StateDtype::blockwise8; },
           [](PlanConfig& c) { c.model.tied_embeddings = true, c.keep_gathered = 1; },
           [](PlanConfig& c) { c.gather = c.reduce = Transport::symmetric; },
           [](PlanConfig& c) { c.placement = CollectivePlacement::after_attention; }}) {
    PlanConfig config = gathering_config();
    change(config);
    expect_right_gather(config);
  }
}

std::string gather_refusal(const std::function<void(EditedPlan&)>& edit,
                           Strategy strategy = Strategy::optim_grads_params) {
  PlanConfig config = gathering_config();
  config.strategy = strategy;
  EditedPlan plan(config);
  edit(plan);
  const std::string error = test::first_proof_error(plan.program);
  EXPECT_NE(test::checker_refusal(plan.program), "") << error;
  return error;
}

TEST(Fp8Gathers, AMagnitudeIsThatOfAllShards) {
  EXPECT_THAT(gather_refusal([](EditedPlan& plan) { plan.drop("only", "weight_amax.all_reduce"); }),
              HasSubstr("expected the largest magnitude of 'the weight of qkv' of layers.0"));
  EXPECT_THAT(gather_refusal([](EditedPlan& plan) {
                plan.collective("only", "weight_amax.all_reduce").reduction = Reduction::sum;
              }),
              HasSubstr("takes the larger one"));
  EXPECT_THAT(gather_refusal([](EditedPlan& plan) {
                Collective& reduce = plan.collective("only", "weight_amax.all_reduce");
                reduce.count -= 1;
                reduce.input.shape = reduce.output.shape = {reduce.count};
              }),
              HasSubstr("expected the largest magnitude of 'the weight of down' of layers.1"));
  EXPECT_THAT(gather_refusal([](EditedPlan& plan) {
                plan.operand("only", "layers.1.qkv.cast", "amax").offset += 4;
              }),
              HasSubstr("expected the largest magnitude of 'the weight of qkv' of layers.1"));
}

TEST(Fp8Gathers, CastsAreOfThisStepsWeights) {
  for (const Strategy strategy : {Strategy::optim, Strategy::optim_grads_params})
    for (const char* op : {"layers.0.gate_up.amax", "layers.1.down.cast", "layers.1.qkv.all_gather",
                           "layers.0.down.dgrad.weight.transpose"})
      EXPECT_THAT(gather_refusal([&](EditedPlan& plan) { plan.drop("only", op); }, strategy),
                  testing::AnyOf(HasSubstr("MF1"), HasSubstr("MF4")))
          << op << " " << to_string(strategy);
  // Eval has its own.
  EXPECT_THAT(gather_refusal([](EditedPlan& plan) {
                auto& ops = plan.program.plans[1].segments[0].ops;
                std::erase_if(ops, [](const Op& op) { return op.name == "layers.1.qkv.cast"; });
              }),
              HasSubstr("MF111"));
}

TEST(Fp8Gathers, CastsAreOfTheirOwnShardsAndScales) {
  EXPECT_THAT(gather_refusal([](EditedPlan& plan) {
                plan.operand("only", "layers.1.qkv", "weight_scale").offset += 16;
              }),
              HasSubstr("expected the scale of the E4M3 cast of 'the weight of qkv'"));
  EXPECT_THAT(gather_refusal([](EditedPlan& plan) {
                auto& attributes = plan.kernel("only", "layers.0.qkv.cast").attributes;
                std::erase_if(attributes,
                              [](const Attribute& a) { return a.name == "through_bf16"; });
              }),
              HasSubstr("rounded to the compute dtype"));
  EXPECT_THAT(gather_refusal([](EditedPlan& plan) {
                plan.operand("only", "layers.0.qkv.cast", "output").buffer =
                    plan.buffer("layers.1.qkv.casts").id;
              }),
              HasSubstr("MF"));
}

}  // namespace
}  // namespace mfsdp
