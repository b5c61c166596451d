#include "core/schedule/build.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "core/model/hf_config.hpp"
#include "core/plan/lifetimes.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/random_execution.hpp"

namespace mfsdp {
namespace {

using test::small_config;

Program build(const PlanConfig& config) {
  auto program = build_program(config, {});
  if (!program) throw std::runtime_error(program.error().message());
  return std::move(*program);
}

/// Collectives of one step of the train plan: "kind purpose" -> how many.
std::map<std::string, std::int64_t> collectives(const Program& program) {
  std::map<std::string, std::int64_t> counts;
  for (const Segment& segment : program.plans[0].segments)
    for (const Op& op : segment.ops)
      if (const auto* body = std::get_if<Collective>(&op.body))
        counts[std::string(to_string(body->kind)) + " " +
               program.communicators[body->communicator.value].purpose] += segment.repeat;
  return counts;
}

using Counts = std::map<std::string, std::int64_t>;

// Two blocks: four units, embedding, 1, 2, head. The world communicator carries the loss sums and
// the norm partials: two small gathers a step in every strategy.
TEST(Schedule, CollectivesOfEveryStrategy) {
  PlanConfig config = small_config(4);
  config.microbatches = 3;
  const auto of = [&](Strategy strategy) {
    config.strategy = strategy;
    return collectives(build(config));
  };
  // Reduced once a step, on the last microbatch.
  EXPECT_EQ(of(Strategy::no_shard),
            (Counts{{"all_gather world", 2}, {"all_reduce reduce_scatter", 4}}));
  EXPECT_EQ(of(Strategy::optim), (Counts{{"all_gather all_gather", 4},
                                         {"all_gather world", 2},
                                         {"reduce_scatter reduce_scatter", 4}}));
  // Reduced every microbatch: 3 * 4. Weights gathered once a step.
  EXPECT_EQ(of(Strategy::optim_grads), (Counts{{"all_gather all_gather", 4},
                                               {"all_gather world", 2},
                                               {"reduce_scatter reduce_scatter", 12}}));
  // Gathers: e 1 2 h, then 1 again (2 stays through the head): 5 in the first microbatch; in the
  // others block 1 has stayed from the backward before: e 2 h 1.
  EXPECT_EQ(of(Strategy::optim_grads_params), (Counts{{"all_gather all_gather", 5 + 4 + 4},
                                                      {"all_gather world", 2},
                                                      {"reduce_scatter reduce_scatter", 12}}));
}

TEST(Schedule, OuterAxisIsReducedOnceAStep) {
  PlanConfig config = small_config(4);
  config.mesh.resize(Axis::dp_outer, 2);
  config.microbatches = 3;
  EXPECT_EQ(collectives(build(config))["all_reduce outer"], 4);  // HSDP
  config.outer_strategy = Strategy::optim;                       // HFSDP
  Counts counts = collectives(build(config));
  EXPECT_EQ(counts["reduce_scatter outer"], 4);
  EXPECT_EQ(counts["all_gather outer"], 4);
  EXPECT_EQ(counts.count("all_reduce outer"), 0U);
}

/// Partials that norm_finish sums.
std::vector<std::int64_t> norm_parts(const PlanConfig& config) {
  const Program program = build(config);
  for (const Op& op : program.plans[0].segments.back().ops)
    if (const auto* kernel = std::get_if<Kernel>(&op.body);
        kernel != nullptr && kernel->kind == KernelKind::norm_finish)
      return kernel->operands[0].shape;
  return {};
}

TEST(Schedule, TheNormCountsEverySliceOnce) {
  // Four groups. Flat over 8: 8 slices each. HSDP 2 x 4: both replicas hold the same 4 slices, so
  // only one counts. HFSDP 2 x 4: 8 slices again.
  EXPECT_EQ(norm_parts(small_config(8)), (std::vector<std::int64_t>{8 * 4}));
  PlanConfig config = small_config(4);
  config.mesh.resize(Axis::dp_outer, 2);
  EXPECT_EQ(norm_parts(config), (std::vector<std::int64_t>{4 * 4}));
  config.outer_strategy = Strategy::optim;
  EXPECT_EQ(norm_parts(config), (std::vector<std::int64_t>{8 * 4}));
}

TEST(Schedule, WithoutClippingUpdatesFollowTheGradients) {
  const auto updates = [](const PlanConfig& config) {
    std::vector<std::string> names;
    const Program program = build(config);
    for (const Op& op : program.plans[0].segments.back().ops)
      if (op.name.ends_with(".adamw")) names.push_back(op.name);
    return names;
  };
  PlanConfig config = small_config(4);
  EXPECT_EQ(updates(config), (std::vector<std::string>{"embedding.adamw", "layers.0.adamw",
                                                       "layers.1.adamw", "head.adamw"}));
  config.clip = Rational{0, 1};
  EXPECT_EQ(updates(config), (std::vector<std::string>{"head.adamw", "layers.1.adamw",
                                                       "layers.0.adamw", "embedding.adamw"}));
}

TEST(Schedule, ASingleRankCommunicatesNothing) {
  for (const Strategy strategy : {Strategy::no_shard, Strategy::optim_grads_params}) {
    PlanConfig config = small_config(1);
    config.strategy = strategy;
    EXPECT_TRUE(collectives(build(config)).empty());
  }
}

TEST(Schedule, SegmentsFollowTheMicrobatches) {
  const auto names = [](std::int64_t microbatches) {
    PlanConfig config = small_config(2);
    config.microbatches = microbatches;
    std::vector<std::pair<std::string, std::int64_t>> list;
    const Program program = build(config);
    for (const Segment& segment : program.find_plan(PlanRole::train)->segments)
      list.emplace_back(segment.name, segment.repeat);
    return list;
  };
  using List = std::vector<std::pair<std::string, std::int64_t>>;
  EXPECT_EQ(names(1), (List{{"only", 1}, {"optimizer", 1}}));
  EXPECT_EQ(names(2), (List{{"first", 1}, {"last", 1}, {"optimizer", 1}}));
  EXPECT_EQ(names(5), (List{{"first", 1}, {"middle", 3}, {"last", 1}, {"optimizer", 1}}));
}

/// The ops on all_gather, compute and reduce_scatter, with kernels folded into their unit.
std::vector<std::string> story(const Program& program) {
  std::vector<std::string> lines;
  for (const Op& op : program.plans[0].segments[0].ops) {
    const auto unit = op.unit ? program.units[op.unit->value].name : std::string();
    std::string line;
    if (op.kind() == OpKind::kernel && op.stream == StreamId(0)) {
      line = std::string(op.phase == Phase::forward ? "forward " : "backward ") + unit;
    } else if (op.kind() == OpKind::collective && !unit.empty()) {
      line = op.name;
    } else {
      continue;
    }
    if (unit.empty()) continue;
    if (lines.empty() || lines.back() != line) lines.push_back(line);
  }
  return lines;
}

TEST(Schedule, HostOrderOfAMicrobatch) {
  EXPECT_EQ(
      story(build(small_config(4))),
      (std::vector<std::string>{
          "embedding.all_gather", "layers.0.all_gather", "forward embedding", "layers.1.all_gather",
          "forward layers.0", "head.all_gather", "forward layers.1", "forward head",
          "backward head", "head.reduce_scatter", "layers.0.all_gather", "backward layers.1",
          "layers.1.reduce_scatter", "backward layers.0", "backward embedding",
          "embedding.reduce_scatter", "backward layers.0", "layers.0.reduce_scatter"}));
}

/// Kernels of the compute stream after the embedding's backward.
std::vector<std::string> behind_the_embedding(const PlanConfig& config) {
  std::vector<std::string> names;
  bool behind = false;
  const Program program = build(config);
  for (const Op& op : program.plans[0].segments[0].ops) {
    if (op.kind() != OpKind::kernel || op.stream != StreamId(0)) continue;
    if (behind && op.phase == Phase::backward) names.push_back(op.name);
    behind = behind || op.name == "embedding.lookup.backward";
  }
  return names;
}

/// Only GEMMs whose inputs are not overwritten: the residual's gradient, which the GEMMs of `down`
/// and `attention_out` read, becomes the embedding's.
TEST(Schedule, TheLowestBlocksLastWeightGradientsHideTheEmbeddingsReduction) {
  const std::vector<std::string> late{"layers.0.gate_up.wgrad", "layers.0.qkv.wgrad",
                                      "layers.0.post_norm.backward.weight_grad",
                                      "layers.0.input_norm.backward.weight_grad"};
  EXPECT_THAT(behind_the_embedding(small_config(4)), testing::UnorderedElementsAreArray(late));
  // Where nothing is reduced, or the embedding would wait for the block's slot, there is no use.
  EXPECT_THAT(behind_the_embedding(small_config(1)), testing::IsEmpty());
  PlanConfig config = small_config(4);
  config.grad_slots = 1;
  EXPECT_THAT(behind_the_embedding(config), testing::IsEmpty());
}

/// Reductions of a segment that write the main gradient, and those that write their own slice of
/// their input.
std::pair<int, int> reductions(const Program& program, const Segment& segment) {
  std::pair<int, int> seen;
  for (const Op& op : segment.ops) {
    const auto* body = std::get_if<Collective>(&op.body);
    if (body == nullptr || body->kind != CollectiveKind::reduce_scatter) continue;
    EXPECT_EQ(body->output.offset, 0);
    if (body->output.buffer != body->input.buffer) {
      const auto main = std::ranges::find(program.buffers, body->output.buffer, &Buffer::id);
      EXPECT_EQ(main->category, Category::main_grad);
      EXPECT_TRUE(body->output.rank_strides.empty());
      ++seen.first;
      continue;
    }
    EXPECT_EQ(body->output.rank_strides,
              (std::vector<RankStride>{{Axis::dp_shard, body->count * size_of(body->dtype)}}));
    ++seen.second;
  }
  return seen;
}

TEST(Schedule, AReductionBeginsTheMainGradientOrWritesItsOwnSliceOfItsInput) {
  PlanConfig config = small_config(4);
  config.microbatches = 2;
  const Program program = build(config);
  const auto& s = program.plans[0].segments;
  EXPECT_EQ(reductions(program, s[0]), (std::pair{4, 0}));
  EXPECT_EQ(reductions(program, s[1]), (std::pair{0, 4}));
  // If its dtype is not the reduction dtype, it is converted.
  config.reduce_dtype = DType::bf16;
  const Program narrow = build(config);
  EXPECT_EQ(reductions(narrow, narrow.plans[0].segments[0]), (std::pair{0, 4}));
}

/// Betas of the kernels that write a unit's weight gradient, by segment.
std::vector<std::int64_t> betas(const Segment& segment, const std::string& name) {
  std::vector<std::int64_t> list;
  for (const Op& op : segment.ops)
    if (const auto* kernel = std::get_if<Kernel>(&op.body); kernel != nullptr && op.name == name)
      list.push_back(kernel->attribute("beta", -1));
  return list;
}

TEST(Schedule, GradientsBeginWithACopyAndThenAdd) {
  PlanConfig config = small_config(4);
  config.microbatches = 3;
  // Sharded gradients: each microbatch overwrites its slot; the first one's reduction begins the
  // main gradient, the others' are added.
  const Program sharded = build(config);
  const auto& s = sharded.plans[0].segments;
  for (const Segment& segment : {s[0], s[1], s[2]})
    EXPECT_EQ(betas(segment, "layers.0.qkv.wgrad"), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(betas(s[0], "layers.0.accumulate"), (std::vector<std::int64_t>{}));
  EXPECT_EQ(betas(s[1], "layers.0.accumulate"), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(betas(s[2], "layers.0.accumulate"), (std::vector<std::int64_t>{1}));
  // Whole gradients: the weight gradient itself begins, then adds.
  config.strategy = Strategy::optim;
  const Program whole = build(config);
  EXPECT_EQ(betas(whole.plans[0].segments[0], "layers.0.qkv.wgrad"),
            (std::vector<std::int64_t>{0}));
  EXPECT_EQ(betas(whole.plans[0].segments[1], "layers.0.qkv.wgrad"),
            (std::vector<std::int64_t>{1}));
}

TEST(Schedule, CopyEnginesDealGradientsOutAndAKernelSumsThem) {
  PlanConfig config = small_config(4);
  config.microbatches = 3;
  config.reduce = Transport::copy_engine;
  const Program program = build(config);
  const auto& s = program.plans[0].segments;
  const auto buffer = [&](const std::string& name) {
    return *std::ranges::find(program.buffers, name, &Buffer::name);
  };
  // Parts are as large as the slot, in a window of the same communicator; the sum is in none.
  const Buffer parts = buffer("layers.0.grad_parts");
  EXPECT_EQ(parts.size, buffer("layers.0.grad").size);
  EXPECT_EQ(parts.holds->dealt, Axis::dp_shard);
  const Pool& pool = program.pools[parts.pool.value];
  EXPECT_EQ(pool.name, "gradient_parts");
  EXPECT_EQ(pool.registered, program.pools[buffer("layers.0.grad").pool.value].registered);
  EXPECT_EQ(program.pools[buffer("layers.0.main_grad").pool.value].name, "state");
  std::vector<std::string> story;
  for (const Op& op : s[1].ops)
    if (op.phase == Phase::reduce && op.name.starts_with("layers.0."))
      story.push_back(std::string(to_string(op.kind())) + " " + op.name);
  EXPECT_EQ(story,
            (std::vector<std::string>{"acquire layers.0.grad_parts",
                                      "collective layers.0.all_to_all", "release layers.0.grad",
                                      "kernel layers.0.sum_ranks", "release layers.0.grad_parts"}));
  EXPECT_EQ(betas(s[0], "layers.0.sum_ranks"), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(betas(s[1], "layers.0.sum_ranks"), (std::vector<std::int64_t>{1}));
  EXPECT_EQ(betas(s[2], "layers.0.sum_ranks"), (std::vector<std::int64_t>{1}));
  // With one rank nothing is exchanged.
  config.mesh.resize(Axis::dp_shard, 1);
  for (const Pool& own : build(config).pools) EXPECT_FALSE(own.registered) << own.name;
}

TEST(Schedule, TiedWeightsReduceOnceWithBothContributions) {
  PlanConfig config = small_config(4);
  config.model.tied_embeddings = true;
  const Program program = build(config);
  const Segment& segment = program.plans[0].segments[0];
  EXPECT_EQ(betas(segment, "embedding_head.chunk0.wgrad"), (std::vector<std::int64_t>{0}));
  EXPECT_EQ(betas(segment, "embedding_head.lookup.backward"), (std::vector<std::int64_t>{1}));
  int reductions = 0;
  for (const Op& op : segment.ops)
    if (op.name == "embedding_head.reduce_scatter") ++reductions;
  EXPECT_EQ(reductions, 1);
}

TEST(Schedule, FrozenUnitsAreGatheredButNeverReduced) {
  PlanConfig config = small_config(4, 3);
  config.frozen = {"embed_tokens", "layers.0."};
  const Program program = build(config);
  for (const Op& op : program.plans[0].segments[0].ops) {
    EXPECT_NE(op.name, "layers.0.reduce_scatter");
    EXPECT_NE(op.name, "embedding.lookup.backward");
    EXPECT_NE(op.name, "layers.0.down.dgrad");  // nothing below needs a gradient
  }
  const Counts counts = collectives(program);
  EXPECT_EQ(counts.at("reduce_scatter reduce_scatter"), 3);  // layers 1, 2 and head
}

TEST(Schedule, EveryProgramHoldsTrainAndEvalOverOneMemoryMap) {
  const Program program = build(small_config(4));
  const Plan* eval = program.find_plan(PlanRole::eval);
  ASSERT_NE(eval, nullptr);
  for (const Op& op : eval->segments[0].ops) {
    EXPECT_NE(op.phase, Phase::backward);
    EXPECT_NE(op.phase, Phase::reduce);
  }
}

TEST(Schedule, HoldsGradientSlotsAndPrefetchedWeightsToTheirBounds) {
  for (const char* name : {"llama3_8b", "llama3_1b", "qwen2.5_0.5b", "llama_tiny"})
    for (const std::int64_t slots : {2, 3})
      for (const std::int64_t prefetch : {1, 2})
        for (const std::int64_t microbatches : {1, 3}) {
          PlanConfig config;
          config.model =
              load_model(name, std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models")
                  ->shape;
          config.mesh.resize(Axis::dp_shard, 8);
          config.seq_len = 512;
          config.grad_slots = slots;
          config.prefetch = prefetch;
          config.microbatches = microbatches;
          const Program program = build(config);
          EXPECT_EQ(max_live_buffers(program, program.plans[0], Category::unsharded_grad),
                    slots + (config.model.tied_embeddings ? 1 : 0));
          EXPECT_EQ(max_live_buffers(program, program.plans[0], Category::unsharded_weight),
                    prefetch + 1);
        }
}

TEST(Schedule, SomeInterleavingReachesTheBounds) {
  // The bounds are not merely upper: random executions come to them.
  PlanConfig config = small_config(4, 4);
  config.grad_slots = 2;
  const Program program = build(config);
  int gradients = 0;
  int weights = 0;
  for (std::uint32_t seed = 0; seed < 20; ++seed) {
    test::RandomExecution execution(program, program.plans[0], seed);
    ASSERT_EQ(execution.run(2), std::nullopt);
    gradients = std::max(gradients, execution.most_live(Category::unsharded_grad));
    weights = std::max(weights, execution.most_live(Category::unsharded_weight));
  }
  EXPECT_EQ(gradients, 2);
  EXPECT_EQ(weights, 2);
}

TEST(Schedule, OverflowingSizesAreAnError) {
  PlanConfig config = small_config(1);
  config.model.hidden = (std::int64_t{1} << 31) - 2;
  config.model.max_seq_len = std::int64_t{1} << 24;
  config.seq_len = std::int64_t{1} << 24;
  config.micro_batch = 1 << 20;
  config.logits_chunk = std::int64_t{1} << 24;
  const auto program = build_program(config, {});
  ASSERT_FALSE(program.has_value());
  EXPECT_FALSE(program.error().message().empty());
}

}  // namespace
}  // namespace mfsdp
