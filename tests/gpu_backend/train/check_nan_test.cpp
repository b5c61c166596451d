// Runs in which something becomes NaN: --check-nan names what did first.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstring>

#include "tests/gpu_backend/train/training.hpp"

namespace mfsdp {
namespace {

using test::Counting;
using test::nano;
using test::Told;
using test::train;
using ::testing::AllOf;
using ::testing::HasSubstr;

void check_nan(TrainInputs& inputs) { inputs.settings.check_nan = true; }

void make_nan(const OperandView& operand) {
  std::memset(operand.data, 0xff, static_cast<std::size_t>(size_of(operand.dtype)));
}

/// `then` looks at what each kernel has computed.
std::function<void(MachineSettings&)> after_kernels(
    const std::function<void(const KernelCall&)>& then) {
  return [=](MachineSettings& settings) {
    const KernelFunction honest = settings.kernel;
    settings.kernel = [honest, then](const KernelCall& call) -> Result<void> {
      MFSDP_TRY(honest(call));
      then(call);
      return {};
    };
  };
}

const OperandView& output_of(const KernelCall& call) {
  for (std::size_t i = 0; i < call.operands.size(); ++i)
    if (call.kernel->operands[i].access == Access::write) return call.operands[i];
  return call.operands.back();
}

/// Sums of ranks come in bf16 and are widened by a kernel.
PlanConfig narrow_wire() {
  PlanConfig config = nano(2);
  config.reduce_dtype = DType::bf16;
  return config;
}

TEST(CheckNan, NamesStepParameterElementAndRank) {
  const Counting data;
  for (const std::int64_t rank : {0, 1}) {
    // A gradient that becomes NaN in step 3, on the rank that widens its sum.
    const auto spoil_sum = after_kernels([rank](const KernelCall& call) {
      if (call.kernel->kind == KernelKind::accumulate && call.step == 2 && call.rank == rank)
        make_nan(output_of(call));
    });
    const Told told = train(narrow_wire(), 6, data, {.inputs = check_nan, .machine = spoil_sum});
    ASSERT_FALSE(told.end);
    EXPECT_EQ(told.end.error().fault, Fault::environment);
    EXPECT_THAT(told.end.error().message(),
                AllOf(HasSubstr(fmt::format("rank {}, step 3, model.", rank)),
                      HasSubstr("its gradient is nan at element ")));
    ASSERT_EQ(told.steps.size(), 3U);  // all that were done are known
    EXPECT_TRUE(told.steps[2].non_finite);
  }
}

/// A weight in the middle makes every gradient NaN, the embedding's too; none of them is at fault.
TEST(CheckNan, NamesAWeightBeforeAnyStep) {
  const Counting data;
  PlanConfig hfsdp = nano(4);
  hfsdp.mesh = data_parallel_mesh(2, 2);
  hfsdp.outer_strategy = Strategy::optim;
  for (const PlanConfig& config : {nano(2, Strategy::no_shard), nano(3), hfsdp}) {
    const Told told =
        train(config, 2, data, {.inputs = check_nan, .before = [](std::int64_t, Trainer& trainer) {
                                  test::spoil("model.layers.1.mlp.down_proj.weight", trainer);
                                }});
    ASSERT_FALSE(told.end);
    EXPECT_THAT(told.end.error().message(),
                HasSubstr("step 1, model.layers.1.mlp.down_proj.weight: its weight is nan at "
                          "element 0 before the step"));
    EXPECT_TRUE(told.steps.empty());
  }
}

TEST(CheckNan, FindsAWeightThatNoGradientMeets) {
  const Counting data;
  const Told told = train(nano(2, Strategy::no_shard), 2, data,
                          {.inputs = check_nan, .before = [](std::int64_t, Trainer& trainer) {
                             // A weight of a token that no sample contains.
                             for (const ParameterPlaces& p : trainer.parameters())
                               if (p.parameter->name == "model.embed_tokens.weight")
                                 std::memset(p.own.data + 4 * 263 * 32, 0xff, 4);
                           }});
  ASSERT_FALSE(told.end);
  EXPECT_THAT(told.end.error().message(),
              HasSubstr("step 1, model.embed_tokens.weight: its weight is nan at element 8416 "));
}

/// Attention's backward in block 1 makes a NaN. It reaches the gradients of the norm before
/// attention, of its projection, of block 0 and of the embedding, but no earlier ones. The norm's
/// comes first: the projection's waits for its input, which is recomputed.
TEST(CheckNan, NamesTheFirstGradientOfBackward) {
  const Counting data;
  for (const Strategy strategy : {Strategy::no_shard, Strategy::optim_grads_params}) {
    std::array<std::atomic<int>, 2> calls{};
    const auto spoil_block_1 = after_kernels([&](const KernelCall& call) {
      if (call.kernel->kind != KernelKind::attention_backward || call.step != 1) return;
      const int blocks_left = static_cast<int>(nano().model.layers) - 1 -
                              calls.at(static_cast<std::size_t>(call.rank))++;
      if (blocks_left == 1 && call.rank == 1) make_nan(output_of(call));
    });
    const Told told =
        train(nano(2, strategy), 3, data, {.inputs = check_nan, .machine = spoil_block_1});
    ASSERT_FALSE(told.end);
    EXPECT_THAT(told.end.error().message(),
                AllOf(HasSubstr("step 2, model.layers.1.input_layernorm.weight: "),
                      HasSubstr("its gradient is nan at element "),
                      HasSubstr("(op layers.1.input_norm.backward.weight_grad); loss and weights "
                                "were finite")));
    EXPECT_EQ(told.steps.size(), 2U);
  }
}

TEST(CheckNan, NamesALossWhoseWeightsAreFinite) {
  const Counting data;
  const Told told =
      train(nano(2), 3, data,
            {.inputs = check_nan, .machine = after_kernels([](const KernelCall& call) {
                                    if (call.kernel->kind == KernelKind::embedding_forward &&
                                        call.step == 1)
                                      make_nan(output_of(call));
                                  })});
  ASSERT_FALSE(told.end);
  EXPECT_THAT(told.end.error().message(),
              HasSubstr("step 2, loss: is nan, though all weights were finite"));
}

TEST(CheckNan, TellsANormThatOverflowsFromItsGradients) {
  const Counting data;
  const auto huge = [](const KernelCall& call) {
    if (call.kernel->kind != KernelKind::accumulate || call.step != 1) return;
    const float value = 1e30F;
    ASSERT_EQ(output_of(call).dtype, DType::fp32);
    std::memcpy(output_of(call).data, &value, sizeof value);
  };
  const Told told =
      train(narrow_wire(), 3, data, {.inputs = check_nan, .machine = after_kernels(huge)});
  ASSERT_FALSE(told.end);
  EXPECT_THAT(told.end.error().message(),
              HasSubstr("step 2, gradient norm: is inf, though all gradients are finite"));
}

TEST(CheckNan, NamesAWeightThatTheUpdateMade) {
  const Counting data;
  const auto spoil_update = [](const KernelCall& call) {
    if (call.kernel->kind != KernelKind::update || call.step != 1 || call.rank != 1) return;
    for (std::size_t i = 0; i < call.operands.size(); ++i)
      if (call.operands[i].role == "main_weight") make_nan(call.operands[i]);
  };
  const Told told =
      train(nano(2), 3, data, {.inputs = check_nan, .machine = after_kernels(spoil_update)});
  ASSERT_FALSE(told.end);
  EXPECT_THAT(told.end.error().message(),
              AllOf(HasSubstr("rank 1, step 2, model."), HasSubstr("its weight is nan at element "),
                    HasSubstr(" after the update")));
}

}  // namespace
}  // namespace mfsdp
