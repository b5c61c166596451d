// torchtitan's experts under FSDP2. There is no recorded run: the expected values follow from shapes,
// with the arithmetic beside them.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "tests/sim/engines/framework_engines.hpp"

namespace mfsdp {
namespace {

/// torchtitan's modules, and other options.
EngineOptions titan_options(std::vector<std::string> others = {}) {
  others.emplace_back("--modules=torchtitan");
  return test::engine_options(others);
}

/// 1024 tokens of 256 columns, 4 heads of 64 over 2, 8 experts of 128 columns, 2 for each token; 8
/// ranks.
PlanConfig titan_experts(std::int64_t layers, std::int64_t ep) {
  PlanConfig config = test::config_of(test::llama(256, 512, layers, 4, 2, 1000), 1024);
  config.model.qk_norm = true;
  config.model.experts = 8;
  config.model.experts_per_token = 2;
  config.model.expert_intermediate = 128;
  config.model.normalised_routing = true;
  if (ep > 1) config.expert_parallel = ep;
  config.mesh = with_expert_grid(config.mesh, ep);
  return config;
}

EnginePlan titan_plan(const PlanConfig& config, const EngineOptions& options = titan_options()) {
  const auto own = engine_config(EngineKind::fsdp2, config, options);
  EXPECT_TRUE(own) << own.error().message();
  return engine_plan_of(EngineKind::fsdp2, *own, {}, kL2OfH200, options);
}

constexpr std::int64_t kTitanTokens = 1024;
constexpr std::int64_t kTitanRows = 2 * kTitanTokens;
constexpr std::int64_t kTitanState = kTitanTokens * 256 * 2;
constexpr std::int64_t kTitanKey = kTitanTokens * 128 * 2;
constexpr std::int64_t kTitanSums = kTitanTokens * 4;  // one in fp32 for each token
constexpr std::int64_t kTitanProduct = kTitanRows * 128 * 2;

TEST(Fsdp2Experts, ExchangeRowsAndCounts) {
  // Counts of 8 experts, rows there and back; in backward rows there and back, once each.
  constexpr std::int64_t kPair = kTitanRows / 2 * 256;  // of two ranks
  EXPECT_EQ(test::collective_counts(titan_plan(titan_experts(1, 2)), CollectiveKind::all_to_all),
            (std::vector<std::int64_t>{4, kPair, kPair, kPair, kPair}));
  EXPECT_TRUE(
      test::collective_counts(titan_plan(titan_experts(1, 1)), CollectiveKind::all_to_all).empty());
}

TEST(Fsdp2Experts, AreGatheredAmongTheRanksThatHaveThem) {
  // Four experts over four ranks: three matrices of one expert each. All else over eight: qkv 512 x
  // 256, out 256 x 256, router 8 x 256, norms 2 x 256 and 2 x 64.
  constexpr std::int64_t kExperts = std::int64_t{3} * 128 * 256;
  constexpr std::int64_t kOthers = ((512 + 256 + 8) * 256 + 2 * 256 + 2 * 64) / 8;
  const std::vector<std::int64_t> gathered =
      test::collective_counts(titan_plan(titan_experts(1, 2)), CollectiveKind::all_gather);
  // The root in forward, which stays, and the block in forward and backward.
  EXPECT_EQ(std::ranges::count(gathered, kExperts), 2);
  EXPECT_EQ(std::ranges::count(gathered, kOthers), 2);
  EXPECT_EQ(gathered.size(), 5U);
  // A single rank for each expert gathers nothing.
  const std::vector<std::int64_t> alone =
      test::collective_counts(titan_plan(titan_experts(1, 8)), CollectiveKind::all_gather);
  EXPECT_EQ(alone.size(), 3U);
  // Without expert parallelism one gather has both: eight experts over eight ranks.
  const std::vector<std::int64_t> together =
      test::collective_counts(titan_plan(titan_experts(1, 1)), CollectiveKind::all_gather);
  EXPECT_EQ(std::ranges::count(together, kExperts + kOthers), 2);
}

TEST(Fsdp2Experts, KeepForBackwardWhatTheirGradientsRead) {
  // Attention keeps the input with the norm's sums, and normed rows. It keeps copies of queries and
  // keys with sums of each head, rotated queries and keys, and copied values. It keeps its output with
  // its sums and 2 x 512 bytes of random state; then the sum, with the norm's sums.
  constexpr std::int64_t kAttention =
      kTitanState + kTitanSums + kTitanState + (kTitanState + 4 * kTitanSums) +
      (kTitanKey + 2 * kTitanSums) + kTitanState + 2 * kTitanKey + kTitanState + 4 * kTitanSums +
      2 * 512 + kTitanState + kTitanSums;
  // Router: its input and weight in fp32, probabilities, numbers and weights of experts, their sum.
  constexpr std::int64_t kRouter = 2 * kTitanState + std::int64_t{8} * 256 * 4 + 8 * kTitanSums +
                                   kTitanRows * 8 + kTitanRows * 4 + kTitanSums;
  // Order and tokens of rows, rows, gate, SiLU, up, both multiplied, rows in fp32, their weights.
  constexpr std::int64_t kExperts =
      2 * kTitanRows * 8 + 2 * kTitanState + 4 * kTitanProduct + 4 * kTitanState + kTitanRows * 4;
  const auto peak = [](std::int64_t layers, std::int64_t ep, Recompute kind) {
    PlanConfig config = titan_experts(layers, ep);
    config.recompute.kind = kind;
    return engine_memory(titan_plan(config), {})
        .at_peak[static_cast<std::size_t>(Category::activation)];
  };
  constexpr std::int64_t kKept = kAttention + kRouter + kExperts;
  EXPECT_EQ(peak(6, 1, Recompute::none) - peak(4, 1, Recompute::none), Bytes(2 * kKept));
  // And the order of the rows that other ranks sent.
  EXPECT_EQ(peak(6, 2, Recompute::none) - peak(4, 2, Recompute::none),
            Bytes(2 * (kKept + kTitanRows * 8)));
  EXPECT_EQ(peak(6, 2, Recompute::full) - peak(4, 2, Recompute::full), Bytes(2 * kTitanState));
}

TEST(Fsdp2Experts, MoreRanksThanExpertsShardRows) {
  // 16 ranks, 8 experts: a sixteenth of the rows of each expert, without padding.
  PlanConfig config = titan_experts(1, 1);
  config.mesh = data_parallel_mesh(1, 16);
  EXPECT_EQ(titan_plan(config).padding, (8 + 2 * 8) * 256);  // the router, embedding and head
}

TEST(Fsdp2Experts, SayWhatIsNotDescribed) {
  const auto refused = [](const PlanConfig& config, EngineKind engine,
                          const EngineOptions& options) {
    const auto own = engine_config(engine, config, options);
    return own ? "" : own.error().where;
  };
  const PlanConfig config = titan_experts(2, 2);
  EXPECT_EQ(refused(config, EngineKind::fsdp2, {}), "--model");
  EXPECT_EQ(refused(config, EngineKind::fsdp2_compile, titan_options()), "--modules");
  const EngineOptions options = titan_options({"--selective-ac=op"});
  EXPECT_EQ(refused(config, EngineKind::fsdp2, options), "--selective-ac");
  PlanConfig other = config;
  other.model.qk_norm = false;  // as Mixtral's or Qwen2's
  EXPECT_EQ(refused(other, EngineKind::fsdp2, titan_options()), "--model");
}

/// Latent attention, a dense layer before those with experts, and a shared expert.
ModelShape titan_deepseek(ModelShape model) {
  model.family = Family::deepseek;
  model.qk_norm = false;
  model.kv_heads = model.heads;
  model.head_dim = 96;
  model.rotary_dim = 32;
  model.value_dim = 64;
  model.kv_latent = 128;
  model.query_latent = 192;
  model.shared_intermediate = 256;
  model.dense_layers = {0};
  return model;
}

TEST(Fsdp2Experts, OfDeepSeekHaveAllParameters) {
  PlanConfig config = titan_experts(3, 2);
  config.model = titan_deepseek(config.model);
  const EnginePlan plan = titan_plan(config);
  std::int64_t shards = 0;
  for (const Buffer& buffer : plan.program.buffers)
    if (buffer.category == Category::main_weight && buffer.name.ends_with("_weight"))
      shards += buffer.size.value / 4;
  // Eight ranks have all weights but experts' once, and each half of the experts four times an
  // eighth of it: a rank's share is an eighth of the whole, with the padding of both.
  EXPECT_EQ(8 * shards - parameter_count(config.model), plan.padding);
}

TEST(Fsdp2Experts, OfDeepSeekKeepHeadsOfBothWidths) {
  // Two more layers: kept bytes of one, from the list above but for attention and a shared expert.
  PlanConfig config = titan_experts(4, 1);
  const auto peak = [&](std::int64_t layers) {
    config.model.layers = layers;
    PlanConfig own = config;
    own.model = titan_deepseek(own.model);
    return engine_memory(titan_plan(own), {})
        .at_peak[static_cast<std::size_t>(Category::activation)];
  };
  // The input with its norm's sums, normed rows; the latent vectors: of queries 192 columns, and
  // normed again, with sums; of keys and values 128 + 32 columns, and 128 normed, with sums; queries
  // and keys of 4 x 96; 4 x (64 + 64) columns with the values; attention of 4 x 64 with its sums and
  // random state; the sum, with the norm's sums.
  constexpr std::int64_t kColumn = kTitanTokens * 2;
  constexpr std::int64_t kAttention = kTitanState + kTitanSums + kTitanState + 2 * 192 * kColumn +
                                      kTitanSums + (160 + 128) * kColumn + kTitanSums +
                                      2 * 384 * kColumn + 512 * kColumn + kTitanState +
                                      4 * kTitanSums + 2 * 512 + kTitanState + kTitanSums;
  constexpr std::int64_t kRouter = 2 * kTitanState + std::int64_t{8} * 256 * 4 + 8 * kTitanSums +
                                   kTitanRows * 8 + kTitanRows * 4 + kTitanSums;
  constexpr std::int64_t kExperts =
      2 * kTitanRows * 8 + 2 * kTitanState + 4 * kTitanProduct + 4 * kTitanState + kTitanRows * 4;
  // Normed rows, which the shared expert reads; gate, SiLU, up and both multiplied, of 256 columns.
  constexpr std::int64_t kShared = kTitanState + 4 * 256 * kColumn;
  EXPECT_EQ(peak(6) - peak(4), Bytes(2 * (kAttention + kRouter + kExperts + kShared)));
}

RC_GTEST_PROP(Fsdp2Experts, FreeWhatTheyAllocate, ()) {
  PlanConfig config = titan_experts(test::pick({1, 3}), test::pick({1, 2, 8}));
  if (test::pick({0, 1}) == 1) config.model = titan_deepseek(config.model);
  config.micro_batch = test::pick({1, 2});
  config.microbatches = test::pick({1, 2, 3});
  config.reduce_dtype = test::pick({0, 1}) == 1 ? DType::bf16 : DType::fp32;
  if (test::pick({0, 1}) == 1) config.recompute.kind = Recompute::full;
  if (test::pick({0, 1}) == 1) config.strategy = Strategy::optim_grads;
  std::vector<std::string> others;
  if (test::pick({0, 1}) == 1) others.emplace_back("--accumulate-unsharded");
  if (test::pick({0, 1}) == 1) others.emplace_back("--fsdp-unit=block,ends");
  test::check_balance(titan_plan(config, titan_options(others)));
}

}  // namespace
}  // namespace mfsdp
