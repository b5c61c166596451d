// Megatron-Core's steps. There is no recorded run: the expected values follow from shapes, with the
// arithmetic beside them.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "sim/engines/mcore_buffer.hpp"
#include "tests/sim/engines/recorded_llamas.hpp"

namespace mfsdp {
namespace {

using test::any_engine_config;
using test::check_balance;
using test::config_of;
using test::llama;
using test::llama3_8b;
using test::plan_of;

constexpr EngineKind kFused = EngineKind::mcore;
constexpr EngineKind kUnfused = EngineKind::mcore_unfused_loss;

BufferedWeight weight(std::int64_t rows, std::int64_t columns) {
  BufferedWeight made;
  made.rows = rows;
  made.columns = columns;
  return made;
}

TEST(McoreBuffer, BucketsEndWithTheWeightThatFillsThem) {
  // From the last: 30 million, then 20 million that fill the bucket; the first lies in another.
  const ParameterBuffer buffer =
      parameter_buffer({weight(1000, 1000), weight(4000, 5000), weight(6000, 5000)}, 8);
  ASSERT_EQ(buffer.buckets.size(), 2U);
  EXPECT_EQ(buffer.weights[2].begin, 0);
  EXPECT_EQ(buffer.weights[1].begin, 30'000'000);  // a multiple of 64: 468,750 x 64
  EXPECT_EQ(buffer.buckets[0].end, 50'000'000);    // a multiple of 128: 390,625 x 128
  EXPECT_EQ(buffer.weights[0].begin, 50'000'000);
  // 1,000,000 = 7,812.5 x 128, so that the end is 7,813 x 128 on.
  EXPECT_EQ(buffer.buckets[1].end, 50'000'000 + 1'000'064);
  EXPECT_EQ(buffer.elements, 51'000'064);
  EXPECT_EQ(buffer.padding(), 64);
}

TEST(McoreBuffer, RanksOwnEqualPartsOfBuckets) {
  const ParameterBuffer buffer =
      parameter_buffer({weight(1000, 1000), weight(4000, 5000), weight(6000, 5000)}, 8);
  EXPECT_EQ(buffer.owned(2, 8), 6'250'000);  // 50 million / 8, all inside the last weight
  EXPECT_EQ(buffer.owned(1, 8), 0);
  EXPECT_EQ(buffer.owned(0, 8), 125'008);  // 1,000,064 / 8
}

TEST(McoreBuffer, ManyRanksHaveLargerBuckets) {
  // 64 ranks: 64 million elements fill one.
  const std::vector<BufferedWeight> weights(4, weight(8000, 4000));
  EXPECT_EQ(parameter_buffer(weights, 32).buckets.size(), 2U);
  EXPECT_EQ(parameter_buffer(weights, 64).buckets.size(), 2U);
  EXPECT_EQ(parameter_buffer(weights, 65).buckets.size(), 2U);
  EXPECT_EQ(parameter_buffer(weights, 97).buckets.size(), 1U);  // 3 x 32 million are too few
}

/// Sizes of a segment's allocations, in order, of at least `least` bytes.
std::vector<std::int64_t> allocated(const EnginePlan& plan, std::string_view unit, Phase phase,
                                    std::int64_t least) {
  std::vector<std::int64_t> sizes;
  for (const Op& op : plan.program.find_plan(PlanRole::train)->segments.front().ops) {
    const auto* acquire = std::get_if<Acquire>(&op.body);
    if (acquire == nullptr || op.phase != phase || !op.name.starts_with(unit)) continue;
    const std::int64_t size = plan.program.buffers[acquire->buffer.value].size.value;
    if (size >= least) sizes.push_back(size);
  }
  return sizes;
}

// 1024 tokens of 256 columns, 4 heads of 64 over 2, 512 columns in the MLP.
constexpr std::int64_t kTokens = 1024;
constexpr std::int64_t kState = kTokens * 256 * 2;
constexpr std::int64_t kQkv = kTokens * (256 + 2 * 128) * 2;
constexpr std::int64_t kQuery = kTokens * 256 * 2;
constexpr std::int64_t kKey = kTokens * 128 * 2;
constexpr std::int64_t kSums = kTokens * 4;  // one in fp32 for each token
constexpr std::int64_t kProduct = kTokens * 512 * 2;

PlanConfig one_layer() { return config_of(llama(256, 512, 1, 4, 2, 1000), kTokens); }

TEST(McoreBlock, AllocatesForwardAsItsModulesDo) {
  const std::vector<std::int64_t> expected{
      kSums,    kState,    kQkv,  // norm's sums and rows, and the GEMM's output
      kQuery,   kQuery,    kKey,
      kKey,                               // copied queries, rotated, rotated keys, copied values
      kQuery,   4 * kSums, kState,        // attention, its sums of each head, the GEMM after it
      kState,                             // with the residual
      kSums,    kState,    2 * kProduct,  // norm's sums and rows, gate and up
      kProduct, kState,    kState};       // SwiGLU, the GEMM, with the residual
  EXPECT_EQ(allocated(plan_of(kFused, one_layer()), "layers.0", Phase::forward, kSums), expected);
}

TEST(McoreBlock, AllocatesBackwardAsItsModulesDo) {
  // Partial sums of a norm's weight: 132 rows of 256 in fp32. Scratch of cuDNN's attention:
  constexpr std::int64_t kPartial = std::int64_t{132} * 256 * 4;
  constexpr std::int64_t kScratch = 2 * kQuery + 2 * kQuery + 4 * kSums + 256;
  const std::vector<std::int64_t> expected{
      kProduct, 2 * kProduct,            // of SwiGLU's output; of gate and up
      kState,   kState,       kPartial,  // of the norm's rows; of its input, with the scratch
      kQuery,                            // of attention's output
      kQuery,   kKey,         kKey,      // of query, key and value
      kScratch,                          //
      kKey,     kQuery,                  // rotated back
      kQkv,                              // joined
      kState,   kState,       kPartial};
  EXPECT_EQ(allocated(plan_of(kFused, one_layer()), "layers.0", Phase::backward, kSums), expected);
}

TEST(McoreMemory, OfABlockThatIsComputedAgainOnlyItsInputStays) {
  // Two more layers take two more inputs; without recomputation, all that backward reads.
  const auto peak = [](std::int64_t layers, Recompute kind) {
    PlanConfig config = config_of(llama(256, 512, layers, 4, 2, 1000), kTokens);
    config.recompute.kind = kind;
    return engine_memory(plan_of(kFused, config), {})
        .at_peak[static_cast<std::size_t>(Category::activation)];
  };
  EXPECT_EQ(peak(9, Recompute::full) - peak(7, Recompute::full), Bytes(2 * kState));
  // The input, two norms with sums, query, key, value, attention with its sums (and 512 bytes of
  // random state), the sum, gate and up, SwiGLU.
  constexpr std::int64_t kKept = kState + 2 * (kState + kSums) + 2 * kQuery + 2 * kKey + 4 * kSums +
                                 512 + kState + 3 * kProduct;
  EXPECT_EQ(peak(9, Recompute::none) - peak(7, Recompute::none), Bytes(2 * kKept));
}

/// The allocator's block for a request, alone in segments of 2 MiB: a rest of up to 1 MiB of the
/// last one is not split off.
std::int64_t block_of(std::int64_t bytes) {
  constexpr std::int64_t kSegment = std::int64_t{2} << 20;
  const std::int64_t rounded = (bytes + 511) / 512 * 512;
  const std::int64_t whole = (bytes + kSegment - 1) / kSegment * kSegment;
  return whole - rounded > kSegment / 2 ? rounded : whole;
}

TEST(McoreMemory, OfLlama3OnEightRanks) {
  const EnginePlan plan = plan_of(kFused, config_of(llama3_8b(), 8192));
  const EngineMemory memory = engine_memory(plan, {});
  const auto at = [&](Category category) {
    return memory.at_peak[static_cast<std::size_t>(category)].value;
  };
  // 8,030,261,248 weights and what buckets are padded by: bf16, and gradients of twice as many
  // bytes. No bucket has fewer than 40 million, so that there are at most 201.
  const std::int64_t elements = 8'030'261'248 + plan.padding;
  EXPECT_LT(plan.padding, 201 * 1024);
  EXPECT_EQ(at(Category::model_weight), block_of(elements * 2));
  EXPECT_EQ(at(Category::main_grad), block_of(elements * 4));
  EXPECT_EQ(sum_of(memory.at_peak), Bytes(memory.counters.peak_allocated));
  // An eighth, in blocks of 512 bytes.
  EXPECT_NEAR(static_cast<double>(at(Category::main_weight)), static_cast<double>(elements) / 8 * 4,
              1e6);
  // The gradients' stand-ins: one of each shape, head and layers: 128256 x 4096, 6144 x 4096,
  // 4096 x 4096, 28672 x 4096, 4096 x 14336 in bf16.
  EXPECT_EQ(at(Category::unsharded_grad), 2 * 4096 * (128256 + 6144 + 4096 + 28672 + 14336));
}

/// Bytes that are kept for the whole run, of buffers whose name ends so.
std::int64_t kept_bytes(const EnginePlan& plan, std::string_view ending) {
  std::int64_t bytes = 0;
  for (const Buffer& buffer : plan.program.buffers)
    if (buffer.persistent && std::string_view(buffer.name).ends_with(ending))
      bytes += buffer.size.value;
  return bytes;
}

// Two published runs without tensor parallelism, of two pipeline stages and four ranks each
// (MooreThreads/SimuMax, docs/b200: 4096 tokens, Megatron-LM 23e00ed, Transformer Engine 2.11,
// fused loss). A stage has an embedding or a head, and half of the layers: the weights of a model
// with tied embeddings and as many layers. The first stage has two microbatches in flight.
TEST(McoreMemory, OfStagesThatOthersMeasured) {
  struct Run {
    ModelShape stage;
    double published = 0;  ///< GiB, the most of both stages
    double within = 0;     ///< of it
  };
  for (const auto& [stage, published, within] :
       {Run{llama(8192, 28672, 6, 64, 8, 128256), 66.55, 0.001},
        Run{llama(16384, 53248, 2, 128, 16, 128256), 87.08, 0.002}}) {
    const auto plan_with = [&](std::int64_t layers) {
      PlanConfig config = config_of(stage, 4096, 4);
      config.model.tied_embeddings = true;
      config.model.layers = layers;
      return plan_of(kFused, config);
    };
    const auto activations = [&](std::int64_t layers) {
      return engine_memory(plan_with(layers), {})
          .at_peak[static_cast<std::size_t>(Category::activation)]
          .value;
    };
    const EnginePlan plan = plan_with(stage.layers);
    std::int64_t fixed = kept_bytes(plan, "root.weights") + kept_bytes(plan, "root.gradients") +
                         kept_bytes(plan, "te_workspace") + kept_bytes(plan, "gradient_stand_in");
    for (const char* of_optimizer : {"_main", "_exp_avg", "_exp_avg_sq"})
      fixed += kept_bytes(plan, of_optimizer);
    // With this number of layers, memory peaks when all of them are kept.
    const std::int64_t layer = activations(21) - activations(20);
    // The head's stand-in, which the first stage lacks.
    const std::int64_t head = stage.vocab * stage.hidden * 2;
    constexpr std::int64_t kStageTokens = 4096;
    const std::int64_t state = kStageTokens * stage.hidden * 2;
    // Backward of a layer begins: the gradients of its output, and of gate and up.
    const std::int64_t first =
        fixed - head + 2 * stage.layers * layer + state + kStageTokens * stage.intermediate * 4;
    // Backward of the head: logits, the last layer's output, its norm and the gradient of that, and
    // cuBLAS's workspaces of PyTorch.
    const std::int64_t last = fixed + stage.layers * layer + kStageTokens * stage.vocab * 2 +
                              3 * state + (std::int64_t{64} << 20);
    EXPECT_NEAR(static_cast<double>(std::max(first, last)) / (1 << 30), published,
                within * published);
  }
}

/// Collectives of a segment by kind.
std::map<CollectiveKind, std::int64_t> collectives(const Segment& segment) {
  std::map<CollectiveKind, std::int64_t> counts;
  for (const Op& op : segment.ops)
    if (const auto* collective = std::get_if<Collective>(&op.body)) ++counts[collective->kind];
  return counts;
}

TEST(McoreSchedule, GathersFirstAndReducesLast) {
  PlanConfig config = config_of(llama(1024, 2816, 4, 16, 4, 32000), 1024);
  config.microbatches = 5;
  const EnginePlan plan = plan_of(kFused, config);
  const std::vector<Segment>& segments = plan.program.find_plan(PlanRole::train)->segments;
  ASSERT_EQ(segments.size(), 4U);
  EXPECT_EQ(segments[1].repeat, 3);
  // A layer has 11.27 million weights, the ends 32.77 million each: head, norm and the fourth layer
  // are 44 million, the three others are 33.8 and come with the embedding.
  EXPECT_EQ(collectives(segments[0]),
            (std::map<CollectiveKind, std::int64_t>{{CollectiveKind::all_gather, 2}}));
  EXPECT_TRUE(collectives(segments[1]).empty());
  EXPECT_EQ(collectives(segments[2]),
            (std::map<CollectiveKind, std::int64_t>{{CollectiveKind::reduce_scatter, 2}}));
  EXPECT_TRUE(collectives(segments[3]).empty());
}

TEST(McoreSchedule, OneRankHasNoCollectives) {
  const EnginePlan plan = plan_of(kFused, config_of(llama(256, 512, 2, 4, 2, 1000), 1024, 1));
  for (const Segment& segment : plan.program.find_plan(PlanRole::train)->segments)
    EXPECT_TRUE(collectives(segment).empty());
}

TEST(McoreConfig, ShardsStatesAndReducesInItsGradientsType) {
  const auto own = engine_config(kFused, one_layer());
  ASSERT_TRUE(own);
  EXPECT_EQ(own->strategy, Strategy::optim);
  PlanConfig config = one_layer();
  config.reduce_dtype = DType::bf16;
  const auto wire = engine_config(kFused, config);
  ASSERT_FALSE(wire);
  EXPECT_EQ(wire.error().where, "--reduce-dtype");
  config.grad_dtype = DType::bf16;
  EXPECT_TRUE(engine_config(kFused, config));
  config.strategy = Strategy::optim_grads;
  const auto strategy = engine_config(kFused, config);
  ASSERT_FALSE(strategy);
  EXPECT_EQ(strategy.error().where, "--strategy");
}

// ---- Experts --------------------------------------------------------------------------------

/// 1024 tokens of 256 columns, of which each has 2 of 8 experts of 128 columns.
PlanConfig dealt(std::int64_t ranks, std::int64_t ep) {
  PlanConfig config = config_of(llama(256, 512, 1, 4, 2, 1000), kTokens, ranks);
  config.model.family = Family::mixtral;
  config.model.experts = 8;
  config.model.experts_per_token = 2;
  config.model.expert_intermediate = 128;
  config.model.normalised_routing = true;
  config.recompute.kind = Recompute::none;
  if (ep > 1) config.expert_parallel = ep;
  config.mesh = with_expert_grid(config.mesh, ep);
  return config;
}

std::vector<const Kernel*> grouped(const Segment& segment, KernelKind kind) {
  std::vector<const Kernel*> kernels;
  for (const Op& op : segment.ops)
    if (const auto* kernel = std::get_if<Kernel>(&op.body);
        kernel != nullptr && kernel->kind == kind)
      kernels.push_back(kernel);
  return kernels;
}

TEST(McoreExperts, ExchangeTheirRowsAndShareBuffersWithRanksThatHaveTheSame) {
  const EnginePlan plan = plan_of(kFused, dealt(4, 2));
  const Segment& segment = plan.program.find_plan(PlanRole::train)->segments.front();
  // Rows and their weights to the experts, rows back; in backward the same the other way round.
  std::vector<std::int64_t> exchanged;
  for (const Op& op : segment.ops)
    if (const auto* collective = std::get_if<Collective>(&op.body))
      if (collective->kind == CollectiveKind::all_to_all) exchanged.push_back(collective->count);
  constexpr std::int64_t kPair = kTokens * 2 / 2;  // rows of all tokens, over two ranks
  EXPECT_EQ(exchanged, (std::vector<std::int64_t>{kPair * 256, kPair, kPair * 256, kPair * 256,
                                                  kPair, kPair * 256}));
  // Four of eight experts, three matrices of 256 x 128 each, in bf16; no padding: 98,304 elements
  // are a multiple of 128.
  EXPECT_EQ(kept_bytes(plan, "root.expert_weights"), std::int64_t{4} * 3 * 256 * 128 * 2);
  // Half of them: two ranks have the same experts.
  EXPECT_EQ(kept_bytes(plan, "_exp_avg") - kept_bytes(plan_of(kFused, dealt(4, 4)), "_exp_avg"),
            std::int64_t{4} * 3 * 256 * 128 / 2 * 4 - std::int64_t{2} * 3 * 256 * 128 * 4);
  const std::vector<const Kernel*> products = grouped(segment, KernelKind::grouped_product);
  ASSERT_EQ(products.size(), 2U);
  EXPECT_EQ(products[0]->attribute("experts"), 4);
  EXPECT_EQ(products[0]->attribute("m"), kTokens * 2);
  EXPECT_EQ(products[0]->attribute("n"), 2 * 128);
  EXPECT_EQ(products[1]->attribute("k"), 128);
}

TEST(McoreExperts, WithoutOtherRanksNothingIsExchanged) {
  const EnginePlan plan = plan_of(kFused, dealt(4, 1));
  for (const Segment& segment : plan.program.find_plan(PlanRole::train)->segments)
    EXPECT_FALSE(collectives(segment).contains(CollectiveKind::all_to_all));
  EXPECT_EQ(kept_bytes(plan, "root.expert_weights"), 0);
}

TEST(McoreExperts, FreeWhatTheyAllocate) {
  for (const Recompute kind : {Recompute::none, Recompute::selective, Recompute::full})
    for (const std::int64_t ep : {1, 2, 4}) {
      PlanConfig config = dealt(4, ep);
      config.recompute.kind = kind;
      check_balance(plan_of(kFused, config));
    }
}

TEST(McoreExperts, SayWhichFlagTheyCannot) {
  PlanConfig config = dealt(4, 2);
  EXPECT_TRUE(engine_config(kFused, config));
  config.capacity_factor = {.num = 3, .den = 2};
  const auto room = engine_config(kFused, config);
  ASSERT_FALSE(room);
  EXPECT_EQ(room.error().where, "--capacity-factor");
  EXPECT_FALSE(engine_config(EngineKind::megatron_fsdp_v1, dealt(4, 2)));
}

RC_GTEST_PROP(McoreProperty, FreesWhatItAllocates, ()) {
  PlanConfig config = any_engine_config();
  config.grad_dtype = config.reduce_dtype;
  check_balance(plan_of(*rc::gen::element(kFused, kUnfused), config));
}

RC_GTEST_PROP(McoreProperty, EveryBucketIsGatheredAndReducedOnceAStep, ()) {
  PlanConfig config = any_engine_config();
  config.grad_dtype = config.reduce_dtype;
  const EnginePlan plan = plan_of(kFused, config);
  std::map<CollectiveKind, std::int64_t> elements;
  for (const Segment& segment : plan.program.find_plan(PlanRole::train)->segments)
    for (const Op& op : segment.ops)
      if (const auto* collective = std::get_if<Collective>(&op.body))
        elements[collective->kind] += segment.repeat * collective->count;
  if (config.mesh.world_size() == 1) {
    RC_ASSERT(elements.empty());
    return;
  }
  const auto weights = std::ranges::find(plan.program.buffers, "root.weights", &Buffer::name);
  const std::int64_t own = weights->size.value / 2 / config.mesh.world_size();
  RC_ASSERT(elements.size() == 2U);
  for (const auto& [kind, count] : elements) RC_ASSERT(count == own);
}

}  // namespace
}  // namespace mfsdp
