// Models with experts without --exact-sums: which meshes, strategies and recomputations come to the
// same bits, and how far apart the others are at most.
//
// By default eight combinations of one model are run; MFSDP_EQUALITY=full runs 390 of three, which
// takes minutes, and prints the table that docs/how/determinism.md sums up.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "core/model/hf_config.hpp"
#include "tests/gpu_backend/train/equality_runs.hpp"
#include "tests/support/samples.hpp"

namespace mfsdp {
namespace {

using test::Bounds;
using test::Later;
using test::Row;
using test::Skewed;

/// Sequences of a step, which 8 ranks times three microbatches divide.
constexpr std::int64_t kExpertSequences = 48;
constexpr std::uint64_t kOrderSeed = 7;  // of training's order of samples

struct ExpertGrid {
  std::int64_t outer = 1;
  std::int64_t shard = 1;
  std::int64_t ep = 0;
};

/// 130 of a model: each strategy, with one and three microbatches, on each of 15 grids, and HFSDP
/// where there is a second axis. Recomputation, prefetch, slots and allocators change from one to
/// the next.
std::vector<PlanConfig> with_experts(const ModelShape& model) {
  std::vector<PlanConfig> all;
  const auto add = [&](const ExpertGrid& on, Strategy strategy, Strategy outer) {
    for (const std::int64_t microbatches : {1, 3}) {
      const auto number = std::ssize(all);
      PlanConfig& config = all.emplace_back();
      config.model = model;
      config.mesh = with_expert_grid(data_parallel_mesh(on.outer, on.shard), on.ep);
      config.expert_parallel = on.ep;
      config.strategy = strategy;
      config.outer_strategy = outer;
      config.seq_len = test::kTokens;
      config.microbatches = microbatches;
      config.micro_batch = kExpertSequences / (config.mesh.world_size() * microbatches);
      test::set_schedule(config, number / 2 + number % 2 * 5);
      config.gather = config.reduce = Transport::nccl;
    }
  };
  for (const auto& [outer, shard] : {std::pair{1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 2}, {2, 4}})
    for (const std::int64_t ep : {0, 2, 4, 8}) {
      if (ep > shard) continue;
      const ExpertGrid on{.outer = outer, .shard = shard, .ep = ep};
      for (int strategy = 0; strategy < 4; ++strategy)
        add(on, static_cast<Strategy>(strategy), Strategy::no_shard);
      if (outer > 1) add(on, Strategy::optim_grads_params, Strategy::optim);
    }
  return all;
}

/// Four ranks, experts gathered or expert-parallel over two, three microbatches: two classes of
/// each.
bool is_of_the_few(const PlanConfig& config) {
  return config.mesh.world_size() == 4 && config.mesh.size(Axis::dp_outer) == 1 &&
         config.expert_parallel <= 2 && config.microbatches == 3;
}

/// A gradient is a sum over tokens, n of them: two orders of n terms are no more than
/// n 2^-23 sum |term| apart. Sequences of one token make each term visible by itself.
Bounds token_bounds(const PlanConfig& config, const Dataset& data) {
  PlanConfig alone = config;
  alone.mesh = {};
  alone.expert_parallel = 0;
  alone.strategy = alone.outer_strategy = Strategy::no_shard;
  alone.microbatches = alone.micro_batch = 1;
  Bounds bounds;
  for (std::int64_t token = 0; token < kExpertSequences; ++token) {
    const test::Told told = test::train(alone, 1, Later(data, kOrderSeed, token, 1));
    EXPECT_EQ(test::fault_of(told), "");
    test::widen(bounds, told.gradients, kExpertSequences);
  }
  return bounds;
}

test::Weights first_gradients(PlanConfig config, const Dataset& data) {
  config.seq_len = 1;
  return test::train(config, 1, data).gradients;
}

void expect_classes(const std::string& name) {
  const auto model =
      load_model(name, std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models");
  ASSERT_TRUE(model) << model.error().message();
  std::vector<PlanConfig> configs = with_experts(model->shape);
  if (!test::runs_all()) std::erase_if(configs, [](const auto& c) { return !is_of_the_few(c); });
  const std::int64_t steps = test::runs_all() ? 4 : 2;
  std::vector<Row> rows =
      test::run_all(configs, Skewed(model->shape.vocab, kExpertSequences * steps), steps);
  test::print_header(fmt::format(
      "{}, in floating point; difference: between step-1 gradients of the class and of the first,\n"
      "of sequences of one token, as a part of n 2^-23 sum |g_token|",
      name));
  const Skewed tokens(model->shape.vocab, kExpertSequences);
  PlanConfig shape = rows.front().config;
  shape.seq_len = 1;
  const Bounds bounds = token_bounds(shape, tokens);
  const test::Weights first = first_gradients(rows.front().config, tokens);
  std::int64_t combinations = 0;
  std::set<std::uint64_t> weights;
  for (Row& row : rows) {
    row.worst = test::worst_ratio(first_gradients(row.config, tokens), first, bounds);
    print_row(row);
    expect_one(row);
    EXPECT_LE(row.worst, 1) << row.name;
    combinations += row.combinations;
    weights.insert(row.weights.begin(), row.weights.end());
  }
  fmt::print("{}: {} combinations, {} classes, {} results\n", name, combinations, rows.size(),
             weights.size());
  EXPECT_EQ(combinations, std::ssize(configs));
  // Classes do differ: it matters who adds what first.
  EXPECT_GT(weights.size(), rows.size() / 2);
}

TEST(EqualityOfExperts, ClassesGiveOneResultEachAndAreClose) {
  if (test::kOneCase) GTEST_SKIP() << test::kTheorem;
  expect_classes("moe_nano");
  if (!test::runs_all()) return;
  expect_classes("gpt_oss_nano");
  expect_classes("mla_nano");
}

}  // namespace
}  // namespace mfsdp
