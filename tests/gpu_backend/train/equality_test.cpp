// Every way to train a model comes to the same weights: bit for bit with --exact-sums, and without
// within the classes of combinations that add in one order; between these, gradients differ by no
// more than their additions can.
//
// By default every seventh combination is run for 4 steps; MFSDP_EQUALITY=full runs all 340 for 20,
// which takes minutes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "tests/gpu_backend/train/equality_runs.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/samples.hpp"

namespace mfsdp {
namespace {

using test::Bounds;
using test::describe;
using test::expect_one;
using test::fault_of;
using test::kGlobalBatch;
using test::Later;
using test::print_header;
using test::print_row;
using test::Row;
using test::row_of;
using test::run_all;
using test::Skewed;
using test::steps;
using test::Told;
using test::Weights;
using test::worst_ratio;

// ---- (a) -------------------------------------------------------------------------------------

// A mask between documents changes no bit where a sequence is one document.
TEST(Equality, ExactSumsGiveOneResult) {
  std::vector<PlanConfig> configs = test::combinations(test::nano().model);
  for (std::size_t i = 0; i < configs.size(); ++i) {
    configs[i].exact_sums = true;
    configs[i].layout = static_cast<LayoutRule>(i % Names<LayoutRule>::values.size());
    configs[i].document_mask = i / 2 % 2 == 1;
  }
  const Skewed data(configs.front().model.vocab, kGlobalBatch * steps());
  Row all{.name = "all of them"};
  print_header("--exact-sums; distinct weights, gradients and norms");
  for (const Row& row : run_all(configs, data)) {
    print_row(row);
    expect_one(row);
    merge(all, row);
  }
  print_row(all);
  expect_one(all);
  EXPECT_EQ(all.combinations, std::ssize(configs));
  ASSERT_FALSE(all.first.steps.empty());  // they did train
  EXPECT_LT(all.first.steps.back().loss, all.first.steps.front().loss);
}

// The numbers came from one CPU and hold on all, x86-64 and Arm: docs/how/determinism.md.
TEST(Equality, HasTheSameBitsOnEveryMachine) {
  PlanConfig config = test::nano();
  config.mesh = data_parallel_mesh(1, 2);
  config.strategy = Strategy::optim_grads_params;
  config.exact_sums = true;
  constexpr std::int64_t kSteps = 2;
  const Told told = test::train(config, kSteps, Skewed(config.model.vocab, kGlobalBatch * kSteps));
  ASSERT_EQ(fault_of(told), "");
  EXPECT_EQ(test::hash_of(told.computed, test::hash_of(told.weights)), 17099955800844922319U);
  EXPECT_EQ(test::hash_of(told.gradients), 3586869755282688560U);
}

/// A scale depends on all tokens that a rank casts at once, and on nothing else.
TEST(Equality, Fp8HasTheSameBitsUnderEachStrategyAndRecomputation) {
  std::set<std::uint64_t> results;
  PlanConfig config = test::nano();
  config.mesh = data_parallel_mesh(1, 2);
  config.fp8 = Fp8Recipe::current;
  config.micro_batch = 1;
  config.microbatches = 1;
  constexpr std::int64_t kSteps = 2;
  const Skewed data(config.model.vocab, kGlobalBatch * kSteps);
  for (int i = 0; i < 4; ++i) {
    config.strategy = static_cast<Strategy>(i);
    config.recompute.kind = static_cast<Recompute>(i % 3);
    const Told told = test::train(config, kSteps, data);
    ASSERT_EQ(fault_of(told), "");
    results.insert(test::hash_of(told.computed, test::hash_of(told.weights)));
  }
  EXPECT_EQ(results.size(), 1U);
  config.fp8 = Fp8Recipe::off;
  const Told told = test::train(config, kSteps, data);
  results.insert(test::hash_of(told.computed, test::hash_of(told.weights)));
  EXPECT_EQ(results.size(), 2U);
}

/// Weights that are cast in shards and gathered are those that casting gathered weights gives. (Norms
/// of gradients are summed by other groups, so nothing is clipped.)
TEST(Equality, GatheredCastsGiveTheSameWeights) {
  PlanConfig config = test::nano();
  config.mesh = data_parallel_mesh(1, 2);
  config.fp8 = Fp8Recipe::current;
  config.micro_batch = 1;
  config.microbatches = 2;
  config.clip = {.num = 0};
  constexpr std::int64_t kSteps = 2;
  const Skewed data(config.model.vocab, 2 * kGlobalBatch * kSteps);
  for (int i = 0; i < 4; ++i) {
    config.strategy = static_cast<Strategy>(i);
    config.recompute.kind = static_cast<Recompute>(i % 3);
    std::vector<Weights> weights;
    for (const bool gathers : {false, true}) {
      config.fp8_gather = gathers;
      const Told told = test::train(config, kSteps, data);
      ASSERT_EQ(fault_of(told), "");
      weights.push_back(told.weights);
    }
    EXPECT_EQ(test::first_difference(weights[0], weights[1]), "no") << i;
  }
}

/// Ranks and microbatches of every kind for 36 sequences.
std::vector<PlanConfig> spread(const PlanConfig& shape) {
  std::vector<PlanConfig> all;
  const auto add = [&](Mesh mesh, std::int64_t microbatches, Strategy strategy,
                       Strategy outer = Strategy::no_shard) {
    PlanConfig& config = all.emplace_back(shape);
    config.mesh = mesh;
    config.strategy = strategy;
    config.outer_strategy = outer;
    config.microbatches = microbatches;
    config.micro_batch = 36 / (mesh.world_size() * microbatches);
    config.exact_sums = true;
  };
  add(data_parallel_mesh(1, 1), 1, Strategy::no_shard);
  add(data_parallel_mesh(1, 1), 12, Strategy::no_shard);
  add(data_parallel_mesh(1, 2), 3, Strategy::optim);
  add(data_parallel_mesh(1, 4), 9, Strategy::optim_grads);
  add(data_parallel_mesh(2, 3), 2, Strategy::optim_grads_params);
  add(data_parallel_mesh(3, 2), 2, Strategy::optim_grads_params, Strategy::optim);
  return all;
}

void expect_equal_over_ranks(const PlanConfig& shape) {
  const Skewed data(shape.model.vocab, kGlobalBatch * steps());
  Row all{.name = "all"};
  for (const PlanConfig& config : spread(shape)) {
    Told told = test::train(config, 3, data);
    ASSERT_EQ(fault_of(told), "") << describe(config);
    merge(all, row_of("", config, std::move(told), 0));
  }
  expect_one(all);
}

TEST(Equality, ExactSumsReachEveryKernel) {
  PlanConfig config;
  config.model = test::nano().model;
  config.model.tied_embeddings = false;
  config.model.qkv_bias = true;
  config.model.qk_norm = true;
  config.seq_len = 8;
  config.logits_chunk = 16;  // two sequences, or one where there are no more
  expect_equal_over_ranks(config);
  config.logits_chunk = 4;  // half a sequence
  config.param_dtype = DType::fp32;
  config.optimizer = Optimizer::sgd;
  config.frozen = {"layers.0.mlp", "layers.1.input_layernorm"};
  config.clip = {0, 1};
  expect_equal_over_ranks(config);
}

/// Blocks are orthogonalised by other ranks on each mesh: three blocks on 1 to 8 ranks.
TEST(Equality, MuonIsTheSameBitsWhoeverOrthogonalises) {
  PlanConfig config;
  config.model = test::nano().model;
  config.model.layers = 3;
  config.seq_len = 8;
  config.logits_chunk = 16;
  config.optimizer = Optimizer::muon;
  config.frozen = {"layers.1.mlp", "embed_tokens"};  // so that a round has fewer blocks than ranks
  expect_equal_over_ranks(config);
}

/// Adapters' gradients are summed as others are; frozen weights stay to the bit.
TEST(Equality, ExactSumsReachAdapters) {
  PlanConfig config;
  config.model = test::nano().model;
  config.seq_len = 8;
  config.logits_chunk = 16;
  config.lora_rank = 3;
  config.lora_alpha = {4, 1};
  config.lora_targets = {"q_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"};
  expect_equal_over_ranks(config);
}

/// Without exact sums too strategies and recomputation change no bit where one microbatch is added
/// in the order of ranks.
TEST(Equality, AdaptersTrainAlike) {
  PlanConfig shape;
  shape.model = test::nano().model;
  shape.seq_len = 8;
  shape.micro_batch = 18;
  shape.mesh = data_parallel_mesh(1, 2);
  shape.lora_rank = 4;
  shape.lora_alpha = {8, 1};
  shape.lora_targets = {"q_proj", "k_proj", "v_proj", "down_proj"};
  const Skewed data(shape.model.vocab, kGlobalBatch * steps());
  Row all{.name = "all"};
  for (int i = 0; i < 6; ++i) {  // each strategy, each way to compute again
    PlanConfig config = shape;
    config.strategy = static_cast<Strategy>(i % 4);
    config.recompute.kind = static_cast<Recompute>(i % 3);
    Told told = test::train(config, 2, data);
    ASSERT_EQ(fault_of(told), "") << describe(config);
    merge(all, row_of("", config, std::move(told), 0));
  }
  expect_one(all);
}

/// Nano models of the other families; with MFSDP_EQUALITY=full on 60 combinations, else on six.
TEST(Equality, OfFamilies) {
  test::Sample sample;
  for (const Family family :
       {Family::gpt2, Family::olmo2, Family::olmoe, Family::gpt_oss, Family::deepseek}) {
    if (!sample.takes_next()) continue;
    ModelShape model = test::nano().model;
    model.qkv_bias = model.qk_norm = true;
    test::make_family(model, family);
    if (family == Family::deepseek)
      model.sigmoid_routing = model.normalised_routing = true;
    else if (model.experts != 0)
      model.router_aux_loss = {1, 10};
    std::vector<PlanConfig> configs = test::combinations(model);
    const std::size_t wanted = test::runs_all() ? 60 : test::cases(6);
    std::vector<PlanConfig> some;
    for (std::size_t i = 0; i < wanted; ++i) some.push_back(configs[i * configs.size() / wanted]);
    const Skewed data(model.vocab, kGlobalBatch * steps(), true);
    print_header(fmt::format("{}, in floating point", to_string(family)));
    for (const Row& row : run_all(some, data)) {
      print_row(row);
      expect_one(row);
    }
    for (PlanConfig& config : some) config.exact_sums = config.document_mask = true;
    Row all{.name = "all of them, with --exact-sums, masked between documents"};
    for (const Row& row : run_all(some, data)) merge(all, row);
    print_row(all);
    expect_one(all);
    EXPECT_EQ(all.combinations, std::ssize(some));
  }
}

// ---- (b) -------------------------------------------------------------------------------------

/// N M 2^-23 sum |g_i|: g_i is what one of N ranks adds in one of M microbatches of the first step.
Bounds bounds_of(const PlanConfig& config, const Dataset& data) {
  PlanConfig alone = config;
  alone.mesh = {};
  alone.outer_strategy = Strategy::no_shard;
  alone.microbatches = 1;
  const std::int64_t parts = config.mesh.world_size() * config.microbatches;
  Bounds bounds;
  for (std::int64_t part = 0; part < parts; ++part) {
    const std::uint64_t seed = 7;
    const Later samples(data, seed, part * config.micro_batch, config.micro_batch);
    const Told told = test::train(alone, 1, samples);
    EXPECT_EQ(fault_of(told), "");
    test::widen(bounds, told.gradients, parts);
  }
  return bounds;
}

/// How far the norms of two such gradients may be apart, being those of means over `tokens`: as far
/// as the gradients, and what rounding partials, norm and 1/T to fp32 adds.
double norm_bound(const Bounds& bounds, double norm, std::int64_t tokens) {
  double squares = 0;
  for (const auto& [name, values] : bounds)
    for (const double value : values) squares += value * value;
  return std::sqrt(squares) / static_cast<double>(tokens) + norm * 0x1p-21;
}

/// Compares the first step of a class with that of another; returns the worst part of the bound.
double compare(const Row& row, const Row& other, const Dataset& data) {
  const Bounds bounds = bounds_of(row.config, data);
  const Told one = test::train(row.config, 1, data);
  const Told two = test::train(other.config, 1, data);
  const StepReport& step = one.steps.at(0);
  EXPECT_NEAR(step.grad_norm, two.steps.at(0).grad_norm,
              norm_bound(bounds, step.grad_norm, step.tokens))
      << row.name << " and " << other.name;
  const double worst = worst_ratio(one.gradients, two.gradients, bounds);
  EXPECT_LE(worst, 1) << row.name << " and " << other.name;
  return worst;
}

TEST(Equality, ClassesGiveOneResultEachAndAreClose) {
  std::vector<PlanConfig> configs = test::combinations(test::nano().model);
  for (PlanConfig& config : configs) config.document_mask = true;
  const Skewed data(configs.front().model.vocab, kGlobalBatch * steps(), true);
  std::vector<Row> rows = run_all(configs, data);
  print_header(
      "in floating point; difference: between the step-1 gradients of the class and the first one "
      "of\nas many ranks and microbatches, as a part of N M 2^-23 sum |g_i|");
  std::set<std::uint64_t> weights;
  for (Row& row : rows) {
    weights.insert(row.weights.begin(), row.weights.end());
    const auto other = std::ranges::find_if(rows, [&](const Row& candidate) {
      return candidate.config.mesh.world_size() == row.config.mesh.world_size() &&
             candidate.config.microbatches == row.config.microbatches;
    });
    if (&*other != &row) row.worst = compare(row, *other, data);
    print_row(row);
    expect_one(row);
  }
  // Classes do differ: without --exact-sums it matters who adds what first.
  EXPECT_GT(weights.size(), rows.size() / 2);
}

// With one microbatch nothing is added to a sum that came over the wire: main gradients that are
// wider than the wire hold the same values.
TEST(Equality, OneMicrobatchNeedsNoWiderMainGradients) {
  PlanConfig config = test::nano();
  config.mesh = data_parallel_mesh(1, 2);
  config.micro_batch = kGlobalBatch / 2;
  config.reduce_dtype = DType::bf16;
  constexpr std::int64_t kSteps = 2;
  const Skewed data(config.model.vocab, kGlobalBatch * kSteps);
  const auto weights = [&](Strategy strategy, DType gradients) {
    config.strategy = strategy;
    config.grad_dtype = gradients;
    const Told told = test::train(config, kSteps, data);
    EXPECT_EQ(fault_of(told), "");
    return told.weights;
  };
  for (const Strategy strategy : {Strategy::optim_grads, Strategy::optim_grads_params})
    EXPECT_EQ(weights(strategy, DType::bf16), weights(strategy, DType::fp32));
}

// Parts of ranks are summed in fp32 and rounded once, to the main gradient's type: with one
// microbatch as a reduce-scatter does, unless that rounds to a narrower wire before.
TEST(Equality, PartsOfRanksAreRoundedOnce) {
  PlanConfig config = test::nano();
  config.mesh = data_parallel_mesh(1, 3);
  config.micro_batch = 8;
  const Skewed data(config.model.vocab, 3 * config.micro_batch);
  const auto weights = [&](Transport by, DType wire, DType gradients) {
    config.reduce = by;
    config.reduce_dtype = wire;
    config.grad_dtype = gradients;
    const Told told = test::train(config, 1, data);
    EXPECT_EQ(fault_of(told), "");
    return told.weights;
  };
  using enum DType;
  using enum Transport;
  EXPECT_EQ(weights(copy_engine, bf16, bf16), weights(nccl, bf16, bf16));
  EXPECT_EQ(weights(copy_engine, fp32, bf16), weights(nccl, fp32, bf16));
  EXPECT_NE(weights(copy_engine, bf16, fp32), weights(nccl, bf16, fp32));
}

}  // namespace
}  // namespace mfsdp
