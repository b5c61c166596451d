// A plan of four ranks that share a sequence and gather keys or pass them around, on the CPU: loss
// and gradients are those of one rank with the whole sequence. Tokens are cut here, by a rule
// written down once more.
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"
#include "tests/verify/cpu/oracle/training_step.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kSharing = 4;
constexpr std::int64_t kTokens = 48;  ///< of the sequence: eight chunks of six

PlanConfig one_sequence() {
  PlanConfig config = test::small_config(1, 2);
  config.model.kv_heads = 1;
  config.model.sliding_layers = {1};
  config.model.sliding_window = 20;
  config.seq_len = kTokens;
  config.model.max_seq_len = kTokens;
  config.strategy = Strategy::no_shard;
  config.param_dtype = config.main_dtype = config.grad_dtype = config.reduce_dtype = DType::fp64;
  config.document_mask = true;
  return config;
}

/// The rank's ids and labels, and positions of all tokens.
void take_chunks(std::int64_t rank, std::span<const std::int32_t> whole,
                 std::span<std::int32_t> own) {
  const std::array<std::int64_t, 2> chunks{rank, 7 - rank};
  std::size_t at = 0;
  for (const std::int64_t row : {0, 1})
    for (const std::int64_t chunk : chunks)
      for (std::int64_t t = 0; t < 6; ++t)
        own[at++] = whole[static_cast<std::size_t>(row * kTokens + chunk * 6 + t)];
  for (std::int64_t t = 0; t < kTokens; ++t)
    own[at++] = whole[static_cast<std::size_t>(2 * kTokens + t)];
}

void expect_one_rank(ContextExchange exchange) {
  for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
    PlanConfig config = one_sequence();
    const Program whole = build_program(config, {}).value();
    config.recompute.kind = recompute;
    config.mesh.resize(Axis::cp, kSharing);
    config.cp_comm = exchange;
    const Program shared = build_program(config, {}).value();
    const test::Tensors weights = test::random_weights(whole, 1);
    const test::Batches batch = test::random_batches(whole, 2);
    test::TrainingStep alone(whole, batch);
    test::TrainingStep step(shared, [&](std::int64_t rank, std::int64_t microbatch, auto own) {
      std::vector<std::int32_t> all(3 * kTokens);
      batch(0, microbatch, all);
      take_chunks(rank, all, own);
    });
    const test::StepOutcome expected = alone.run(weights);
    const test::StepOutcome found = step.run(weights);
    EXPECT_NEAR(found.loss, expected.loss, 1e-9 * expected.loss) << to_string(recompute);
    for (const auto& [name, values] : expected.gradients)
      EXPECT_LT(test::relative_error(found.gradients.at(name), values), 1e-9) << name;
  }
}

TEST(GatheredKeys, HaveTheLossAndTheGradientsOfOneRank) {
  expect_one_rank(ContextExchange::all_gather);
}
TEST(Rings, HaveTheLossAndTheGradientsOfOneRank) { expect_one_rank(ContextExchange::p2p); }

/// Several sequences, and changes of a block.
struct Beside {
  const char* what;
  std::int64_t sequences;
  void (*edit)(PlanConfig& config);
};

/// The rank's ids and labels: consecutive tokens of each sequence, or two chunks.
void take_tokens(const PlanConfig& config, std::int64_t rank, std::span<const std::int32_t> whole,
                 std::span<std::int32_t> own) {
  const std::int64_t chunk = kTokens / (2 * kSharing);
  const bool in_order = config.cp_comm == ContextExchange::a2a;
  std::size_t at = 0;
  for (std::int64_t row = 0; row < 2 * config.micro_batch; ++row)
    for (const std::int64_t number :
         {in_order ? 2 * rank : rank, in_order ? 2 * rank + 1 : 2 * kSharing - 1 - rank})
      for (std::int64_t t = 0; t < chunk; ++t)
        own[at++] = whole[static_cast<std::size_t>(row * kTokens + number * chunk + t)];
}

void expect_one_rank_beside(const Beside& beside, ContextExchange exchange) {
  PlanConfig config = one_sequence();
  config.document_mask = false;
  config.model.sliding_layers.clear();
  config.model.sliding_window = 0;
  config.model.heads = 8;
  config.model.kv_heads = 4;
  config.micro_batch = beside.sequences;
  beside.edit(config);
  const Program whole = build_program(config, {}).value();
  config.mesh.resize(Axis::cp, kSharing);
  config.cp_comm = exchange;
  config.recompute.kind = Recompute::selective;
  const Program shared = build_program(config, {}).value();
  const test::Tensors weights = test::random_weights(whole, 1);
  const test::Batches batch = test::random_batches(whole, 2);
  test::TrainingStep alone(whole, batch);
  test::TrainingStep step(shared, [&](std::int64_t rank, std::int64_t microbatch, auto own) {
    std::vector<std::int32_t> all(static_cast<std::size_t>(2 * kTokens * config.micro_batch));
    batch(0, microbatch, all);
    take_tokens(config, rank, all, own);
  });
  const test::StepOutcome expected = alone.run(weights);
  const test::StepOutcome found = step.run(weights);
  EXPECT_NEAR(found.loss, expected.loss, 1e-9 * expected.loss) << beside.what;
  for (const auto& [name, values] : expected.gradients)
    EXPECT_LT(test::relative_error(found.gradients.at(name), values), 1e-9)
        << beside.what << ", " << to_string(exchange) << ", " << name;
}

TEST(SharedSequences, HaveTheGradientsOfOneRankBesideOtherParts) {
  using enum ContextExchange;
  for (const ContextExchange exchange : {a2a, all_gather, p2p})
    for (const Beside& beside :
         {Beside{"norms", 1, [](PlanConfig& c) { c.model.qk_norm = true; }},
          Beside{"experts", 1, [](PlanConfig& c) { test::add_experts(c.model, 4, 2); }},
          Beside{"adapters", 1, [](PlanConfig& c) {
                   c.lora_rank = 2;
                   c.lora_alpha = {.num = 3};
                   c.lora_targets = {"q_proj", "v_proj", "o_proj", "up_proj"};
                 }}})
      expect_one_rank_beside(beside, exchange);
  expect_one_rank_beside({"sequences", 2, [](PlanConfig&) {}}, p2p);
}

}  // namespace
}  // namespace mfsdp
