// FP8 under FSDP2 with torchao and under Megatron-Core with Transformer Engine: from hand
// arithmetic, as no run of them was recorded.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "sim/engines/engine.hpp"
#include "tests/sim/engines/framework_engines.hpp"

namespace mfsdp {
namespace {

using test::config_of;
using test::framework_plan;
using test::kSmallBlock;
using test::small_llama;

constexpr EngineKind kTorchao = EngineKind::fsdp2_compile;
constexpr std::int64_t kFp8Tokens = 3072;
/// Elements of a block's matrices: all but two norms of 1024.
constexpr std::int64_t kBlockMatrices = kSmallBlock - 2 * 1024;
constexpr std::int64_t kFp8Layers = 4;

PlanConfig config_in_fp8(std::int64_t microbatches = 1) {
  PlanConfig config = config_of(small_llama(), kFp8Tokens);
  config.fp8 = Fp8Recipe::current;
  config.microbatches = microbatches;
  return config;
}

std::int64_t kernel_count(const EnginePlan& plan, KernelKind kind, std::string_view name = {}) {
  std::int64_t found = 0;
  for (const Segment& segment : plan.program.find_plan(PlanRole::train)->segments)
    for (const Op& op : segment.ops)
      if (const auto* kernel = std::get_if<Kernel>(&op.body);
          kernel != nullptr && kernel->kind == kind && op.name.ends_with(name))
        found += segment.repeat;
  return found;
}

std::int64_t peak_of_fp8(const EnginePlan& plan) {
  return engine_memory(plan, {}).counters.peak_allocated;
}

TEST(Fp8Engines, MultiplyLinearLayersOfBlocksInFp8) {
  for (const EngineKind engine : {kTorchao, EngineKind::mcore}) {
    const EnginePlan plan = framework_plan(engine, config_in_fp8());
    EXPECT_EQ(kernel_count(plan, KernelKind::gemm_fp8),
              kFp8Layers * 4 * 3);                       // each with two gradients
    EXPECT_EQ(kernel_count(plan, KernelKind::gemm), 3);  // the head
  }
  PlanConfig config = config_in_fp8();
  config.fp8_keep_bf16 = 1;  // first and last
  EXPECT_EQ(kernel_count(framework_plan(kTorchao, config), KernelKind::gemm_fp8), 2 * 4 * 3);
  EXPECT_EQ(kernel_count(framework_plan(EngineKind::mcore, config), KernelKind::gemm_fp8),
            2 * 4 * 3);
  const EnginePlan separate = framework_plan(kTorchao, config_in_fp8(), {"--modules=transformers"});
  EXPECT_EQ(kernel_count(separate, KernelKind::gemm_fp8), kFp8Layers * 7 * 3);
}

TEST(Fp8Torchao, AnInputIsCastOnceForAllLayersThatReadIt) {
  // A block has two norms, attention and SwiGLU, and seven gradients of outputs.
  const EnginePlan plan = framework_plan(kTorchao, config_in_fp8(), {"--modules=transformers"});
  for (const char* name : {"normed1_fp8", "mixed_fp8", "normed2_fp8", "product_fp8"})
    EXPECT_EQ(kernel_count(plan, KernelKind::cast_scaled, name), kFp8Layers) << name;
  EXPECT_EQ(kernel_count(plan, KernelKind::cast_scaled, "d_output_fp8"), kFp8Layers * 7);
  // Transposed: both operands of weight gradients. Weights are kept, and transposed too.
  EXPECT_EQ(kernel_count(plan, KernelKind::transpose), kFp8Layers * 7 * 3);
}

TEST(Fp8Torchao, KeepsWeightsForBackwardUnlessTheyAreCastAgain) {
  const std::int64_t kept = peak_of_fp8(framework_plan(kTorchao, config_in_fp8()));
  const std::int64_t again = peak_of_fp8(
      framework_plan(kTorchao, config_in_fp8(), {"force_recompute_fp8_weight_in_bwd=true"}));
  // The peak is at the loss; the allocator leaves up to 1 MiB in a block.
  constexpr double kUnsplit = 4 * (1 << 20);
  EXPECT_NEAR(static_cast<double>(kept - again), static_cast<double>(kFp8Layers * kBlockMatrices),
              kUnsplit);
}

TEST(Fp8Torchao, GathersBytes) {
  const std::vector<std::string> options{"enable_fsdp_float8_all_gather=true"};
  const EnginePlan plan = framework_plan(kTorchao, config_in_fp8(), options);
  const auto gathers = test::collective_counts(plan, CollectiveKind::all_gather);
  // Root in bf16, by elements; blocks by bytes: a byte of a matrix's element, two of a norm's.
  EXPECT_EQ(std::ranges::count(gathers, (kBlockMatrices + 2 * 2 * 1024) / 8), 2 * kFp8Layers);
  // Largest magnitudes are reduced for each weight and gather, or at once.
  EXPECT_EQ(test::collective_counts(plan, CollectiveKind::all_reduce).size(),
            static_cast<std::size_t>(2 * kFp8Layers * 4));
  const EnginePlan precomputed =
      framework_plan(kTorchao, config_in_fp8(),
                     {options.front(), "precompute_float8_dynamic_scale_for_fsdp=true"});
  EXPECT_EQ(test::collective_counts(precomputed, CollectiveKind::all_reduce),
            std::vector<std::int64_t>{kFp8Layers * 4});
}

TEST(Fp8TransformerEngine, KeepsTwoCastsOfEachWeight) {
  PlanConfig plain = config_in_fp8();
  plain.fp8 = Fp8Recipe::off;
  EXPECT_EQ(test::resting_bytes(framework_plan(EngineKind::mcore, config_in_fp8())) -
                test::resting_bytes(framework_plan(EngineKind::mcore, plain)),
            2 * kFp8Layers * kBlockMatrices);
}

TEST(Fp8TransformerEngine, CastsWeightsOnceAStep) {
  const auto casts = [](const PlanConfig& config) {
    return kernel_count(framework_plan(EngineKind::mcore, config), KernelKind::cast_scaled,
                        "_weight_cast");
  };
  EXPECT_EQ(casts(config_in_fp8(3)), kFp8Layers * 4);
  PlanConfig recomputed = config_in_fp8(3);
  recomputed.recompute.kind = Recompute::full;
  EXPECT_EQ(casts(recomputed), kFp8Layers * 4);
}

TEST(Fp8Engines, RefuseWhatTheyDoNotDo) {
  const auto message = [](EngineKind engine, const PlanConfig& config,
                          const std::vector<std::string>& options = {}) {
    const auto own = engine_config(engine, config, test::engine_options(options));
    return own ? std::string() : own.error().message();
  };
  EXPECT_EQ(message(EngineKind::fsdp2, config_in_fp8()),
            "--fp8: --engine fsdp2 cannot be predicted with GEMMs in FP8 yet; take fsdp2-compile: "
            "torchao's casts are compiled");
  PlanConfig fast = config_in_fp8();
  fast.fp8_accumulate = Fp8Accumulate::fast;
  EXPECT_EQ(message(EngineKind::mcore, fast),
            "--fp8-accumulate: --engine mcore accumulates fast in forward alone");
  PlanConfig delayed = config_in_fp8();
  delayed.fp8 = Fp8Recipe::delayed;
  EXPECT_EQ(message(EngineKind::mcore, delayed),
            "--fp8: --engine mcore cannot be predicted with other scales than those of --fp8 "
            "current yet; take --fp8 current, or leave --engine out");
  PlanConfig gathers = config_in_fp8();
  gathers.fp8_gather = true;
  EXPECT_EQ(message(kTorchao, gathers),
            "--fp8-gather: --engine fsdp2-compile cannot be predicted with gathers of casts yet; "
            "take --engine-option enable_fsdp_float8_all_gather=true, as torchao calls it");
  EXPECT_EQ(message(kTorchao, config_of(small_llama(), kFp8Tokens),
                    {"enable_fsdp_float8_all_gather=true"}),
            "--engine-option: enable_fsdp_float8_all_gather needs --fp8 tensorwise");
}

}  // namespace
}  // namespace mfsdp
