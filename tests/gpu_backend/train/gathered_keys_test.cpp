// Ranks that share sequences and gather keys, or pass them around, come to the loss and the weights
// of one rank: in fp64 up to what rounding of sums makes, in bf16 as near as bf16 is.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/gpu_backend/train/rounded_runs.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

using test::Told;

/// A way to train on eight sequences a step.
struct Gathered {
  std::int64_t outer = 1;
  std::int64_t shard = 1;
  std::int64_t cp = 1;
  Strategy strategy = Strategy::optim_grads_params;
  Recompute recompute = Recompute::selective;
  ContextExchange exchange = ContextExchange::all_gather;
  std::int64_t ep = 0;
  std::int64_t tp = 1;
};

std::string in_words(const Gathered& way) {
  return std::to_string(way.outer) + " x " + std::to_string(way.shard) + " x cp " +
         std::to_string(way.cp) + ", " + std::string(to_string(way.strategy)) + ", " +
         std::string(to_string(way.exchange)) + ", ep " + std::to_string(way.ep) + ", tp " +
         std::to_string(way.tp);
}

PlanConfig config_of(const Gathered& way, PlanConfig config) {
  config.mesh = data_parallel_mesh(way.outer, way.shard);
  config.mesh.resize(Axis::cp, way.cp);
  config.mesh.resize(Axis::tp, way.tp);
  config.expert_parallel = way.ep;
  config.mesh = with_expert_grid(config.mesh, way.ep);
  if (way.cp > 1) config.cp_comm = way.exchange;
  config.strategy = way.strategy;
  config.recompute.kind = way.recompute;
  config.microbatches = 8 / (way.outer * way.shard);
  return config;
}

/// One key head for all queries, which no ranks could divide.
PlanConfig one_key_head(DType dtype) {
  PlanConfig config = test::nano(1);
  config.model.heads = 3;
  config.model.kv_heads = 1;
  config.logits_chunk = 5;  // the last chunk is shorter
  test::compute_in(dtype, config);
  return config;
}

Told run_gathered(const Gathered& way, const PlanConfig& shape, std::int64_t steps) {
  return test::checked_training(config_of(way, shape), steps, in_words(way));
}

void expect_one_rank(const PlanConfig& shape) {
  using enum Strategy;
  const Told one = run_gathered({.strategy = no_shard}, shape, 3);
  for (const Gathered& way :
       {Gathered{.cp = 2},
        {.cp = 4, .recompute = Recompute::full},
        {.shard = 2, .cp = 2, .recompute = Recompute::none},
        {.shard = 2, .cp = 2, .strategy = optim_grads},
        {.outer = 2, .cp = 4, .strategy = optim},
        {.cp = 8, .strategy = no_shard},
        {.cp = 2, .exchange = ContextExchange::p2p},
        {.shard = 2, .cp = 4, .recompute = Recompute::full, .exchange = ContextExchange::p2p}})
    test::expect_rounded_alike(run_gathered(way, shape, 3), one, in_words(way));
}

/// Sums of ranks' terms are rounded in another order; nothing else differs.
TEST(GatheredKeysRuns, HaveTheWeightsOfOneRankInFp64) {
  expect_one_rank(one_key_head(DType::fp64));
}

/// A window reaches into chunks of other ranks, and documents begin and end in any.
TEST(GatheredKeysRuns, HaveThemWithWindowsAndDocuments) {
  PlanConfig config = one_key_head(DType::fp64);
  config.model.qkv_bias = true;
  config.model.tied_embeddings = false;
  config.model.sliding_window = 6;
  config.model.sliding_layers = {0, 2};
  config.document_mask = true;
  expect_one_rank(config);
}

/// Ranks of cp have other experts as those of dp_shard have, and the balance is of whole sequences.
TEST(SharedSequenceRuns, ExpertsHaveTheWeightsOfOneRank) {
  using enum ContextExchange;
  PlanConfig shape = test::nano(1);
  shape.model.kv_heads = 4;
  test::add_experts(shape.model, 4, 2);
  shape.model.normalised_routing = true;
  shape.model.shared_intermediate = 6;
  shape.model.router_aux_loss = {1, 10};
  shape.model.router_z_loss = {1, 100};
  test::compute_in(DType::fp64, shape);
  const Told one = run_gathered({.strategy = Strategy::no_shard}, shape, 3);
  for (const Gathered& way :
       {Gathered{.cp = 2, .exchange = a2a, .ep = 2},
        {.shard = 2, .cp = 2, .recompute = Recompute::full, .exchange = a2a, .ep = 4},
        {.shard = 2, .cp = 2, .recompute = Recompute::none, .ep = 2},
        {.outer = 2, .cp = 2, .strategy = Strategy::optim, .exchange = p2p, .ep = 2},
        {.cp = 2, .exchange = a2a, .ep = 4, .tp = 2}})
    test::expect_rounded_alike(run_gathered(way, shape, 3), one, in_words(way));
}

TEST(GatheredKeysRuns, StayNearOneRankInBf16) {
  const PlanConfig shape = one_key_head(DType::bf16);
  const Told one = run_gathered({.strategy = Strategy::no_shard}, shape, 4);
  for (const Gathered& way :
       {Gathered{.cp = 2}, {.shard = 2, .cp = 4}, {.cp = 4, .exchange = ContextExchange::p2p}}) {
    const Told told = run_gathered(way, shape, 4);
    for (std::size_t s = 0; s < one.steps.size(); ++s)
      EXPECT_NEAR(told.steps[s].loss, one.steps[s].loss, 0.02) << in_words(way);
  }
}

}  // namespace
}  // namespace mfsdp
