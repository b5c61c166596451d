// Plans with FP8 GEMMs: proof and checker accept what the planner builds, and refuse casts,
// scales and largest magnitudes of another tensor, or of another version of it.
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

TEST(Fp8Plans, AreRight) {
  for (const Strategy strategy :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      PlanConfig config = test::fp8_config(2, 3);
      config.strategy = strategy;
      config.recompute.kind = recompute;
      config.microbatches = 1 + static_cast<std::int64_t>(recompute);
      config.fp8_keep_bf16 = recompute == Recompute::full ? 1 : 0;
      const Program program = build_program(config, {}).value();
      EXPECT_EQ(test::first_proof_error(program), "")
          << to_string(strategy) << " " << to_string(recompute);
      EXPECT_EQ(test::checker_refusal(program), "") << to_string(strategy);
    }
}

TEST(Fp8Plans, OfOtherRecipesAreRight) {
  for (const Fp8Recipe recipe :
       {Fp8Recipe::delayed, Fp8Recipe::blockwise, Fp8Recipe::mxfp8, Fp8Recipe::nvfp4})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
      PlanConfig config = test::block_config(recipe, recompute == Recompute::full ? 1 : 2, 3);
      config.strategy =
          recompute == Recompute::none ? Strategy::no_shard : Strategy::optim_grads_params;
      config.recompute.kind = recompute;
      config.microbatches = 1 + 2 * static_cast<std::int64_t>(recompute);
      config.fp8_keep_bf16 = recompute == Recompute::full ? 1 : 0;
      if (recipe == Fp8Recipe::delayed && recompute == Recompute::none)
        config.fp8_history = 2, config.fp8_amax = Fp8Amax::most_recent;
      const auto program = build_program(config, {});
      ASSERT_TRUE(program) << program.error().message();
      EXPECT_EQ(test::first_proof_error(*program), "")
          << to_string(recipe) << " " << to_string(recompute);
      EXPECT_EQ(test::checker_refusal(*program), "")
          << to_string(recipe) << " " << to_string(recompute);
    }
}

/// Models whose norms are elsewhere add to the residual's gradient; the first block of tied weights.
TEST(Fp8Plans, OfOtherFamiliesAreRight) {
  for (const auto& change : std::vector<std::function<void(PlanConfig&)>>{
           [](PlanConfig& c) {
             c.model.family = Family::olmo2;
             c.model.output_norms = c.model.qk_norm = true;
           },
           [](PlanConfig& c) { c.model.output_norms = true; },
           [](PlanConfig& c) {
             c.model.tied_embeddings = true, c.fp8_accumulate = Fp8Accumulate::fast;
           },
           [](PlanConfig& c) { c.model.qk_norm = true, c.fp8_accumulate = Fp8Accumulate::split; },
           [](PlanConfig& c) { c.model.residual_multiplier = {1, 4}; },
           [](PlanConfig& c) { c.frozen = {"o_proj"}, c.recompute.kind = Recompute::none; },
           [](PlanConfig& c) { c.optimizer = Optimizer::muon, c.document_mask = true; }}) {
    PlanConfig config = test::fp8_config();
    change(config);
    const auto program = build_program(config, {});
    ASSERT_TRUE(program) << program.error().message();
    EXPECT_EQ(test::first_proof_error(*program), "");
    EXPECT_EQ(test::checker_refusal(*program), "");
  }
}

/// The proof's first error of an edited plan; the checker must refuse it too.
std::string refused(const std::function<void(EditedPlan&)>& edit, std::int64_t microbatches = 1,
                    Recompute recompute = Recompute::none, Fp8Recipe recipe = Fp8Recipe::current) {
  PlanConfig config = recipe == Fp8Recipe::current || recipe == Fp8Recipe::delayed
                          ? test::fp8_config()
                          : test::block_config(recipe);
  config.fp8 = recipe;
  config.recompute.kind = recompute;
  config.microbatches = microbatches;
  EditedPlan plan(config);
  edit(plan);
  const std::string error = test::first_proof_error(plan.program);
  EXPECT_NE(test::checker_refusal(plan.program), "") << error;
  return error;
}

std::string refused(const std::function<void(EditedPlan&)>& edit, std::int64_t microbatches,
                    Fp8Recipe recipe) {
  return refused(edit, microbatches, Recompute::none, recipe);
}

/// One operand takes the place of another one of its type.
auto exchanged(const std::string& op, const std::string& role, const std::string& other,
               const std::string& other_role) {
  return [=](EditedPlan& plan) {
    plan.operand("only", op, role).buffer = plan.operand("only", other, other_role).buffer;
  };
}

TEST(Fp8Plans, AProductReadsTheScaleOfItsCast) {
  EXPECT_THAT(refused(exchanged("layers.1.qkv", "input_scale", "layers.1.qkv", "weight_scale")),
              HasSubstr("MF113"));
  EXPECT_THAT(refused(exchanged("layers.1.down.dgrad", "d_output_scale", "layers.1.down.wgrad",
                                "input_scale")),
              HasSubstr("expected the scale of the E5M2 cast of 'd_output' of layers.1"));
  // The block before has a weight of the same shape.
  EXPECT_THAT(refused([](EditedPlan& plan) {
                plan.operand("only", "layers.1.qkv.weight.cast", "amax").buffer =
                    plan.operand("only", "layers.0.qkv.dgrad.weight.cast", "amax").buffer;
              }),
              HasSubstr("MF113"));
}

TEST(Fp8Plans, ACastIsOfTheTensorWhoseMagnitudeWasTaken) {
  EXPECT_THAT(refused(exchanged("layers.1.attention_out.input.amax", "input", "layers.1.rope",
                                "query_key")),
              HasSubstr("MF"));
  EXPECT_THAT(
      refused(exchanged("layers.1.gate_up.input.cast", "amax", "layers.1.qkv.weight.cast", "amax")),
      HasSubstr("expected the largest magnitude of 'normed2' of layers.1"));
  EXPECT_THAT(refused(exchanged("layers.1.down.input.cast", "amax", "layers.1.post_norm", "amax")),
              HasSubstr("MF1"));
  EXPECT_THAT(refused(exchanged("layers.1.attention_out.d_output.cast", "amax",
                                "layers.1.swiglu.backward", "amax")),
              HasSubstr("MF1"));
}

/// Kernels that make a tensor take it: without, the one of the tensor before is another one.
TEST(Fp8Plans, AMagnitudeIsTakenOfEachTensor) {
  for (const char* maker : {"layers.1.post_norm", "layers.1.swiglu", "layers.1.post_norm.backward",
                            "layers.1.input_norm.backward", "head.final_norm.backward"})
    EXPECT_THAT(refused([&](EditedPlan& plan) {
                  auto& operands = plan.kernel("only", maker).operands;
                  std::erase_if(operands, [](const Operand& o) { return o.role == "amax"; });
                }),
                HasSubstr("MF1"))
        << maker;
}

/// Where inputs are computed again, SwiGLU's output is cast without being stored; and where memory is
/// short, a cast is transposed.
TEST(Fp8Plans, WhatIsCastAgainIsThatOfForward) {
  EXPECT_THAT(
      refused(exchanged("layers.1.down.wgrad.input.cast", "amax", "layers.1.post_norm", "amax"), 1,
              Recompute::selective),
      HasSubstr("expected the largest magnitude of 'product' of layers.1"));
  EXPECT_THAT(
      refused(exchanged("layers.1.down.wgrad.input.cast", "gate_up", "layers.0.gate_up", "output"),
              1, Recompute::selective),
      HasSubstr("MF"));
  for (const char* op : {"layers.1.gate_up.d_output.transpose", "layers.1.down.wgrad.input.cast"})
    EXPECT_THAT(refused([&](EditedPlan& plan) { plan.drop("only", op); }, 1, Recompute::selective),
                HasSubstr("MF1"))
        << op;
  // The transposed copy that it makes is no copy of what it reads as it is.
  EXPECT_THAT(
      refused(
          [](EditedPlan& plan) {
            plan.operand("only", "layers.1.gate_up.dgrad", "d_output").buffer =
                plan.operand("only", "layers.1.gate_up.d_output.transpose", "output").buffer;
          },
          1, Recompute::selective),
      HasSubstr("MF"));
}

TEST(Fp8Plans, CastsThatAreLeftOut) {
  for (const char* cast : {"layers.1.attention_out.input.amax", "layers.1.qkv.weight.amax",
                           "layers.0.down.weight.cast", "layers.1.gate_up.dgrad.weight.cast",
                           "layers.0.down.d_output.cast", "layers.1.down.input.cast"})
    for (const std::int64_t microbatches : {1, 2})
      EXPECT_THAT(
          refused([&](EditedPlan& plan) { plan.drop(microbatches == 1 ? "only" : "last", cast); },
                  microbatches),
          HasSubstr("MF1"))
          << cast;
}

TEST(Fp8Plans, GradientsAreE5m2AndOthersE4m3) {
  const auto retype = [](const std::string& cast, DType dtype) {
    return [=](EditedPlan& plan) {
      for (const char* role : {"output", "output_t"})
        for (Operand& operand : plan.kernel("only", cast).operands)
          if (operand.role == role) {
            for (Op& op : plan.program.plans[0].segments[0].ops)
              if (auto* kernel = std::get_if<Kernel>(&op.body))
                for (Operand& other : kernel->operands)
                  if (other.buffer == operand.buffer && &other != &operand) other.dtype = dtype;
            plan.program.buffers[operand.buffer.value].dtype = dtype;
            operand.dtype = dtype;
          }
    };
  };
  EXPECT_THAT(refused(retype("layers.1.qkv.d_output.cast", DType::fp8_e4m3)), HasSubstr("MF113"));
  EXPECT_THAT(refused(retype("layers.1.qkv.input.cast", DType::fp8_e5m2)), HasSubstr("MF"));
}

TEST(Fp8Plans, SumsAreAsConfigured) {
  EXPECT_THAT(refused([](EditedPlan& plan) {
                auto& attributes = plan.kernel("only", "layers.0.qkv").attributes;
                std::erase_if(attributes, [](const Attribute& a) { return a.name == "fast"; });
              }),
              HasSubstr("attribute 'fast' is absent; expected 1"));
  EXPECT_THAT(refused([](EditedPlan& plan) {
                auto& attributes = plan.kernel("only", "layers.0.qkv.wgrad").attributes;
                attributes.insert(attributes.begin() + 1, {"fast", 1});
              }),
              HasSubstr("attribute 'fast' is 1; expected 0"));
}

TEST(Fp8Plans, BlocksMultiplyAsConfigured) {
  PlanConfig config = test::fp8_config(2, 3);
  config.fp8_keep_bf16 = 1;
  Program program = build_program(config, {}).value();
  program.config.fp8_keep_bf16 = 0;
  EXPECT_THAT(test::first_proof_error(program), HasSubstr("multiplies in other numbers than FP8"));
  EXPECT_NE(test::checker_refusal(program), "");
}

// ---- delayed scaling

std::string refused_delayed(const std::function<void(EditedPlan&)>& edit,
                            std::int64_t microbatches = 1) {
  return refused(edit, microbatches, Fp8Recipe::delayed);
}

TEST(DelayedPlans, AScaleIsOfTheTensorsOwnHistory) {
  EXPECT_THAT(refused_delayed([](EditedPlan& plan) {
                plan.operand("only", "layers.1.qkv.input.cast", "amax").offset += 4;
              }),
              HasSubstr("in another column of the history"));
  // Both of a neighbour: it keeps its largest magnitude beside that of another tensor.
  EXPECT_THAT(refused_delayed([](EditedPlan& plan) {
                for (const char* role : {"amax", "next_amax"})
                  plan.operand("only", "layers.1.qkv.input.cast", role).offset += 4;
              }),
              HasSubstr("adds the largest magnitude"));
  // A cast in backward of the weight by another one's scale.
  EXPECT_THAT(refused_delayed([](EditedPlan& plan) {
                plan.operand("only", "layers.1.qkv.dgrad.weight.cast", "amax").offset += 12;
              }),
              HasSubstr("expected the largest magnitude of it that the step before kept"));
}

TEST(DelayedPlans, HistoriesAreOfAllMicrobatchesRanksAndSteps) {
  EXPECT_THAT(refused_delayed([](EditedPlan& plan) { plan.drop("optimizer", "amax.history"); }),
              HasSubstr("MF"));
  EXPECT_THAT(refused_delayed([](EditedPlan& plan) { plan.drop("optimizer", "amax.all_reduce"); }),
              HasSubstr("expected the largest magnitude of this step on all ranks"));
  EXPECT_THAT(refused_delayed([](EditedPlan& plan) { plan.repeat("optimizer", "amax.history"); }),
              HasSubstr("MF"));
  const auto without_next = [](const std::string& segment) {
    return [=](EditedPlan& plan) {
      std::erase_if(plan.kernel(segment, "layers.1.down.input.cast").operands,
                    [](const Operand& o) { return o.role == "next_amax"; });
    };
  };
  EXPECT_THAT(refused_delayed(without_next("only")), HasSubstr("MF113"));
  EXPECT_THAT(refused_delayed(without_next("first"), 2),
              HasSubstr("of 1 microbatches; the step has 2"));
  EXPECT_THAT(refused_delayed([](EditedPlan& plan) {
                plan.kernel("optimizer", "amax.history").attributes.front().value.num = 7;
              }),
              HasSubstr("MF007"));
}

TEST(DelayedPlans, EvaluationKeepsNothing) {
  EXPECT_THAT(refused_delayed([](EditedPlan& plan) {
                Operand next = plan.operand("only", "layers.1.qkv.input.cast", "next_amax");
                for (Op& op : plan.program.plans[1].segments[0].ops)
                  if (auto* kernel = std::get_if<Kernel>(&op.body);
                      kernel != nullptr && op.name == "layers.1.qkv.input.cast")
                    kernel->operands.push_back(next);
              }),
              HasSubstr("in a plan that does not train"));
}

// ---- scales of blocks

TEST(BlockPlans, AProductReadsTheScalesOfItsCasts) {
  const auto refused_with = [](const auto& edit) { return refused(edit, 1, Fp8Recipe::mxfp8); };
  EXPECT_THAT(
      refused_with(exchanged("layers.1.qkv", "input_scale", "layers.1.gate_up", "input_scale")),
      HasSubstr("MF"));
  // The transposed cast's scales are of other blocks, though they are as many of a square matrix.
  EXPECT_THAT(refused_with([](EditedPlan& plan) {
                const BufferId row =
                    plan.operand("only", "layers.1.down.d_output.cast", "output_scale").buffer;
                plan.operand("only", "layers.1.down.wgrad", "d_output_t_scale").buffer = row;
              }),
              HasSubstr("MF1"));
  EXPECT_THAT(refused_with(exchanged("layers.1.down.dgrad", "d_output_scale", "layers.1.down.wgrad",
                                     "d_output_t_scale")),
              HasSubstr("expected the scales of the cast's blocks"));
}

TEST(BlockPlans, BlocksAreTheRecipes) {
  const auto changed = [](const char* attribute, std::int64_t value) {
    return refused(
        [=](EditedPlan& plan) {
          for (Attribute& a : plan.kernel("only", "layers.1.qkv").attributes)
            if (a.name == attribute) a.value.num = value;
        },
        1, Fp8Recipe::mxfp8);
  };
  EXPECT_THAT(changed("block", 64), HasSubstr("MF"));
  EXPECT_THAT(changed("blocks", 2), HasSubstr("MF"));
  EXPECT_THAT(changed("lines", 4), HasSubstr("MF"));
  PlanConfig config = test::block_config(Fp8Recipe::blockwise);
  Program program = build_program(config, {}).value();
  program.config.fp8 = Fp8Recipe::mxfp8;
  EXPECT_THAT(test::first_proof_error(program),
              HasSubstr("has attribute 'block' 128; expected 32"));
  EXPECT_NE(test::checker_refusal(program), "");
  program.config.fp8 = Fp8Recipe::current;
  EXPECT_THAT(test::first_proof_error(program), HasSubstr("MF113"));
  EXPECT_NE(test::checker_refusal(program), "");
}

/// Its tensor's scale is of the tensor's amax.
TEST(BlockPlans, Nvfp4ReadsTheTensorsAmax) {
  // Magnitudes and scales of another tensor that are there at that time.
  EXPECT_THAT(
      refused(exchanged("layers.1.qkv.input.cast", "amax", "layers.1.qkv.weight.cast", "amax"), 1,
              Fp8Recipe::nvfp4),
      HasSubstr("MF113"));
  EXPECT_THAT(refused(exchanged("layers.1.qkv", "weight_tensor_scale", "layers.1.qkv",
                                "input_tensor_scale"),
                      1, Fp8Recipe::nvfp4),
              HasSubstr("MF113"));
}

/// A transposed cast of a matrix of another shape is another matrix.
TEST(Fp8Plans, WeightsAreCastAsTheMatricesThatTheyAre) {
  EXPECT_THAT(refused([](EditedPlan& plan) {
                Kernel& cast = plan.kernel("only", "layers.1.gate_up.dgrad.weight.cast");
                for (Attribute& a : cast.attributes)
                  a.value.num = a.name == "cols" ? a.value.num / 2 : a.value.num * 2;
                for (Operand& operand : cast.operands)
                  if (operand.role == "input")
                    operand.shape = {operand.shape[0] * 2, operand.shape[1] / 2};
                  else if (operand.role == "output_t")
                    operand.shape = {operand.shape[0] / 2, operand.shape[1] * 2};
              }),
              HasSubstr("as a matrix of another shape"));
}

}  // namespace
}  // namespace mfsdp
