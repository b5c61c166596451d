// Ranks that share blocks come to the loss and the weights of one rank: in fp64 up to what rounding
// of sums makes, in bf16 as near as bf16 is.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/gpu_backend/train/rounded_runs.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

using test::Told;

/// A way to train on eight sequences a step.
struct Split {
  std::int64_t outer = 1;
  std::int64_t shard = 1;
  std::int64_t cp = 1;
  std::int64_t tp = 1;
  Strategy strategy = Strategy::optim_grads_params;
  Recompute recompute = Recompute::selective;
  std::int64_t micro_batch = 1;
  std::int64_t ep = 0;
  ContextExchange exchange = ContextExchange::a2a;
  std::int64_t pp = 1;
};

std::string in_words(const Split& split) {
  return std::to_string(split.outer) + " x " + std::to_string(split.shard) + " x cp " +
         std::to_string(split.cp) + " x tp " + std::to_string(split.tp) + " x pp " +
         std::to_string(split.pp) + ", ep " + std::to_string(split.ep) + ", " +
         std::string(to_string(split.strategy)) + ", " + std::string(to_string(split.exchange));
}

PlanConfig config_of(const Split& split, PlanConfig config) {
  config.mesh = data_parallel_mesh(split.outer, split.shard);
  config.mesh.resize(Axis::cp, split.cp);
  config.cp_comm = split.exchange;
  config.mesh.resize(Axis::tp, split.tp);
  config.mesh.resize(Axis::pp, split.pp);
  config.expert_parallel = split.ep;
  config.mesh = with_expert_grid(config.mesh, split.ep);
  config.strategy = split.strategy;
  config.recompute.kind = split.recompute;
  config.micro_batch = split.micro_batch;
  config.microbatches = 8 / (split.outer * split.shard * split.micro_batch);
  return config;
}

PlanConfig shape_of_runs(DType dtype) {
  PlanConfig config = test::nano(1);
  config.model.kv_heads = 4;
  config.logits_chunk = 6;  // the last chunk is shorter
  test::compute_in(dtype, config);
  return config;
}

Told run(const Split& split, const PlanConfig& shape, std::int64_t steps) {
  return test::checked_training(config_of(split, shape), steps, in_words(split));
}

const std::vector<Split>& splits() {
  using enum Strategy;
  static const std::vector<Split> all{
      {.tp = 2},
      {.tp = 4, .recompute = Recompute::full},
      {.shard = 2, .tp = 2, .recompute = Recompute::none, .micro_batch = 2},
      {.shard = 2, .tp = 2, .strategy = optim_grads},
      {.shard = 2, .tp = 4, .strategy = optim, .recompute = Recompute::none},
      {.outer = 2, .shard = 2, .tp = 2}};
  return all;
}

/// Sums of terms are rounded in another order; nothing else differs.
void expect_weights_of_one_rank(const PlanConfig& shape, const std::vector<Split>& all) {
  const Told one = run({.strategy = Strategy::no_shard}, shape, 3);
  for (const Split& split : all)
    test::expect_rounded_alike(run(split, shape, 3), one, in_words(split));
}

TEST(TensorParallelRuns, HaveTheWeightsOfOneRankInFp64) {
  for (const bool tied : {true, false}) {
    PlanConfig shape = shape_of_runs(DType::fp64);
    shape.model.tied_embeddings = tied;
    expect_weights_of_one_rank(shape, splits());
  }
}

TEST(TensorParallelRuns, ShareSequencesToo) {
  PlanConfig shape = shape_of_runs(DType::fp64);
  shape.document_mask = true;
  expect_weights_of_one_rank(
      shape, {{.cp = 2, .tp = 2},
              {.shard = 2, .cp = 2, .tp = 2, .recompute = Recompute::full},
              {.cp = 2, .tp = 2, .strategy = Strategy::optim, .recompute = Recompute::none}});
}

/// Ranks of each stage share blocks, sequences and experts.
TEST(TensorParallelRuns, StagesHaveTheWeightsOfOneRank) {
  PlanConfig shape = shape_of_runs(DType::fp64);
  shape.model.tied_embeddings = false;
  shape.document_mask = true;
  expect_weights_of_one_rank(
      shape, {{.tp = 2, .strategy = Strategy::optim, .pp = 3},
              {.shard = 2, .cp = 2, .tp = 2, .recompute = Recompute::full, .pp = 2}});
  test::add_experts(shape.model, 4, 2);
  shape.model.router_z_loss = {1, 100};
  expect_weights_of_one_rank(shape, {{.shard = 2, .tp = 2, .ep = 4, .pp = 2}});
}

/// Each rank of cp has all heads of its rank of tp, fewer than there are ranks of both.
TEST(TensorParallelRuns, ShareSequencesByChunksToo) {
  PlanConfig shape = shape_of_runs(DType::fp64);
  shape.model.kv_heads = 2;
  shape.model.sliding_window = 5;
  shape.model.sliding_layers = {0};
  shape.document_mask = true;
  expect_weights_of_one_rank(
      shape,
      {{.cp = 2, .tp = 2, .strategy = Strategy::optim, .exchange = ContextExchange::all_gather},
       {.shard = 2,
        .cp = 2,
        .tp = 2,
        .recompute = Recompute::full,
        .exchange = ContextExchange::p2p}});
}

/// Norms of heads and biases as Qwen's, output norms, GeGLU and windows as Gemma's.
TEST(TensorParallelRuns, OtherBlocksThanLlamasHaveTheWeightsOfOneRank) {
  PlanConfig shape = shape_of_runs(DType::fp64);
  shape.model.qk_norm = shape.model.qkv_bias = true;
  shape.model.output_norms = shape.model.zero_centered_norms = true;
  shape.model.scaled_embedding = true;
  shape.model.activation = Activation::gelu_tanh;
  shape.model.sliding_window = 5;
  shape.model.sliding_layers = {0};
  shape.model.local_rope_theta = {100, 1};
  shape.model.logit_cap = {3, 1};
  shape.model.score_cap = {2, 1};
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
    expect_weights_of_one_rank(shape, {{.shard = 2, .tp = 2, .recompute = recompute}});
}

/// Each rank routes its own rows, and ranks of tp have other experts as all ranks have.
TEST(TensorParallelRuns, ExpertsHaveTheWeightsOfOneRank) {
  PlanConfig shape = shape_of_runs(DType::fp64);
  test::add_experts(shape.model, 4, 2);
  shape.model.normalised_routing = true;
  shape.model.shared_intermediate = 6;
  shape.model.router_aux_loss = {1, 10};
  shape.model.router_z_loss = {1, 100};
  expect_weights_of_one_rank(
      shape, {{.tp = 2},
              {.tp = 2, .ep = 2},
              {.shard = 2, .tp = 2, .recompute = Recompute::full, .ep = 4},
              {.outer = 2, .shard = 2, .tp = 2, .recompute = Recompute::none, .ep = 2}});
}

/// Two and four ranks hold each head of keys, with norms of heads and biases as Qwen's.
TEST(TensorParallelRuns, MoreRanksThanHeadsOfKeysHaveTheWeightsOfOneRank) {
  PlanConfig shape = shape_of_runs(DType::fp64);
  shape.document_mask = true;
  shape.model.kv_heads = 2;
  expect_weights_of_one_rank(shape, {{.tp = 4}});
  shape.model.qk_norm = shape.model.qkv_bias = true;
  shape.model.kv_heads = 1;
  expect_weights_of_one_rank(shape,
                             {{.shard = 2, .tp = 2, .recompute = Recompute::none, .micro_batch = 2},
                              {.shard = 2, .tp = 4, .recompute = Recompute::full}});
}

/// Sinks are of heads, and a bias of a sum is added once.
TEST(TensorParallelRuns, SinksAndBiasesOfSumsHaveTheWeightsOfOneRank) {
  PlanConfig shape = shape_of_runs(DType::fp64);
  test::make_family(shape.model, Family::gpt_oss);
  expect_weights_of_one_rank(shape, {{.tp = 2, .recompute = Recompute::full},
                                     {.shard = 2, .tp = 2, .recompute = Recompute::none, .ep = 4}});
}

/// Ranks have other heads, made of the latent vectors of all rows.
TEST(TensorParallelRuns, LatentAttentionHasTheWeightsOfOneRank) {
  PlanConfig shape = shape_of_runs(DType::fp64);
  test::make_family(shape.model, Family::deepseek);
  expect_weights_of_one_rank(shape, {{.tp = 2, .recompute = Recompute::none},
                                     {.shard = 2, .tp = 2, .ep = 4},
                                     {.shard = 2, .tp = 4, .recompute = Recompute::full}});
}

/// Their matrices are cut at outputs and at inputs.
TEST(TensorParallelRuns, AdaptersHaveTheWeightsOfOneRank) {
  PlanConfig shape = shape_of_runs(DType::fp64);
  shape.lora_rank = 2;
  shape.lora_alpha = {8, 1};
  shape.lora_targets = {"q_proj", "v_proj", "o_proj", "up_proj", "down_proj"};
  expect_weights_of_one_rank(shape,
                             {{.shard = 2, .tp = 2}, {.tp = 4, .strategy = Strategy::optim}});
}

TEST(TensorParallelRuns, StayNearOneRankInBf16) {
  const PlanConfig shape = shape_of_runs(DType::bf16);
  const Told one = run({.strategy = Strategy::no_shard}, shape, 4);
  for (const Split& split : {Split{.tp = 2}, Split{.shard = 2, .tp = 4}}) {
    const Told told = run(split, shape, 4);
    for (std::size_t s = 0; s < one.steps.size(); ++s)
      EXPECT_NEAR(told.steps[s].loss, one.steps[s].loss, 0.02) << in_words(split);
  }
}

}  // namespace
}  // namespace mfsdp
