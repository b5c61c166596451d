// GPT's blocks under other engines. There is no recorded run: the expected values follow from
// shapes, with the arithmetic beside them.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "tests/sim/engines/framework_engines.hpp"

namespace mfsdp {
namespace {

using test::check_balance;
using test::config_of;
using test::plan_of;

ModelShape gpt_of(std::int64_t layers) {
  ModelShape shape = test::llama(256, 512, layers, 4, 4, 1000);
  shape.family = Family::gpt2;
  shape.activation = Activation::gelu_tanh;
  shape.qkv_bias = true;
  shape.tied_embeddings = true;
  shape.max_seq_len = 2048;
  return shape;
}

// 1024 tokens of 256 columns, 4 heads of 64, 512 columns in the MLP.
constexpr std::int64_t kGptTokens = 1024;
constexpr std::int64_t kGptState = kGptTokens * 256 * 2;
constexpr std::int64_t kGptSums = kGptTokens * 4;  // one in fp32 for each token
constexpr std::int64_t kGptProduct = kGptTokens * 512 * 2;

/// Sizes of allocations of the first block in the first microbatch, in order, without vectors.
std::vector<std::int64_t> gpt_allocated(const EnginePlan& plan, Phase phase) {
  std::vector<std::int64_t> sizes;
  for (const Op& op : plan.program.find_plan(PlanRole::train)->segments.front().ops) {
    const auto* acquire = std::get_if<Acquire>(&op.body);
    if (acquire == nullptr || op.phase != phase || !op.name.starts_with("layers.0")) continue;
    const Buffer& buffer = plan.program.buffers[acquire->buffer.value];
    if (buffer.size.value >= kGptSums && buffer.category != Category::unsharded_weight)
      sizes.push_back(buffer.size.value);
  }
  return sizes;
}

TEST(McoreGpt, AllocatesForwardAsItsModulesDo) {
  const std::vector<std::int64_t> expected{
      kGptSums,      kGptSums,     kGptState,
      3 * kGptState,  // LayerNorm's means, deviations and rows; the GEMM
      kGptState,     4 * kGptSums,
      kGptState,  // attention, its sums of each head, the GEMM after it
      kGptState,  // with the residual
      kGptSums,      kGptSums,     kGptState,
      kGptProduct,                              // LayerNorm, and the MLP's first GEMM
      kGptProduct,   kGptState,    kGptState};  // GELU, the GEMM, with the residual
  EXPECT_EQ(
      gpt_allocated(plan_of(EngineKind::mcore, config_of(gpt_of(1), kGptTokens)), Phase::forward),
      expected);
}

TEST(McoreGpt, AllocatesBackwardAsItsModulesDo) {
  // Partial sums of a norm's weight and bias: 132 rows of 256 in fp32 of each. Scratch of cuDNN's
  // attention: sums of dQ in fp32, a sum for each row.
  constexpr std::int64_t kPartial = std::int64_t{2} * 132 * 256 * 4;
  constexpr std::int64_t kScratch = 2 * kGptState + 4 * kGptSums + 256;
  const std::vector<std::int64_t> expected{kGptProduct,   kGptProduct,  // of GELU, of its input
                                           kGptState,     kGptState,   kPartial,  // of the norm
                                           kGptState,      // of attention's output
                                           3 * kGptState,  // of all heads at once
                                           kScratch,       //
                                           kGptState,     kGptState,   kPartial};
  EXPECT_EQ(
      gpt_allocated(plan_of(EngineKind::mcore, config_of(gpt_of(1), kGptTokens)), Phase::backward),
      expected);
}

TEST(McoreGpt, ItsBuffersHaveAllParameters) {
  const ModelShape shape = gpt_of(2);
  const EnginePlan plan = plan_of(EngineKind::mcore, config_of(shape, kGptTokens));
  const auto weights = std::ranges::find(plan.program.buffers, "root.weights", &Buffer::name);
  EXPECT_EQ(weights->size.value, 2 * (parameter_count(shape) + plan.padding));
}

TEST(Gpt, KeepsForBackwardWhatItsGradientsRead) {
  // A layer keeps the input, two norms with means and deviations, the heads' rows, attention with its
  // sums (and 512 bytes of random state), the sum, GELU's input and output.
  constexpr std::int64_t kKept = kGptState + 2 * (kGptState + 2 * kGptSums) + 3 * kGptState +
                                 kGptState + 4 * kGptSums + 512 + kGptState + 2 * kGptProduct;
  for (const EngineKind engine : {EngineKind::mcore, EngineKind::fsdp1, EngineKind::fsdp2}) {
    const auto peak = [&](std::int64_t layers, Recompute kind) {
      PlanConfig config = config_of(gpt_of(layers), kGptTokens);
      config.recompute.kind = kind;
      return engine_memory(plan_of(engine, config), {})
          .at_peak[static_cast<std::size_t>(Category::activation)];
    };
    EXPECT_EQ(peak(9, Recompute::none) - peak(7, Recompute::none), Bytes(2 * kKept))
        << to_string(engine);
    EXPECT_EQ(peak(9, Recompute::full) - peak(7, Recompute::full), Bytes(2 * kGptState))
        << to_string(engine);
  }
}

TEST(Fsdp1Gpt, ItsRootHasThePositions) {
  // 1000 + 2048 rows, and the norm's weight and bias, of 256 each.
  const EnginePlan plan = test::framework_plan(EngineKind::fsdp1, config_of(gpt_of(2), kGptTokens));
  EXPECT_EQ(test::bytes_of(plan, "flat_parameter"), (1000 + 2048 + 2) * 256 * 2);
}

TEST(Gpt, IsRefusedWhereItsBlocksAreNotDescribed) {
  for (const EngineKind engine :
       {EngineKind::fsdp2_compile, EngineKind::megatron_fsdp_v1, EngineKind::deepspeed_zero3}) {
    const auto own = engine_config(engine, config_of(gpt_of(2), kGptTokens));
    ASSERT_FALSE(own) << to_string(engine);
    EXPECT_EQ(own.error().where, "--model");
  }
  for (const char* option : {"--modules=transformers", "--fsdp-unit=block,ends"})
    EXPECT_FALSE(engine_config(EngineKind::fsdp2, config_of(gpt_of(2), kGptTokens),
                               test::engine_options({option})))
        << option;
}

RC_GTEST_PROP(Gpt, FreesWhatItAllocates, ()) {
  PlanConfig config = test::any_engine_config();
  config.model = gpt_of(test::pick({1, 2, 5}));
  config.model.tied_embeddings = test::pick({0, 1}) == 1;
  const EngineKind engine = *rc::gen::element(EngineKind::mcore, EngineKind::mcore_unfused_loss,
                                              EngineKind::fsdp1, EngineKind::fsdp2);
  RC_PRE(config.mesh.world_size() > 1 || engine == EngineKind::fsdp2);
  if (traits_of(engine).reduces_in_grad_dtype) config.grad_dtype = config.reduce_dtype;
  check_balance(plan_of(engine, config));
}

}  // namespace
}  // namespace mfsdp
