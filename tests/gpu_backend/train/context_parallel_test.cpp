// Ranks that share sequences come to the weights of one rank, bit for bit with --exact-sums.
//
// By default ten ways are run; MFSDP_EQUALITY=full runs all 189 on up to eight ranks, of two models.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <map>
#include <string>
#include <vector>

#include "tests/gpu_backend/train/equality_runs.hpp"

namespace mfsdp {
namespace {

using test::describe;
using test::expect_one;
using test::fault_of;
using test::merge;
using test::print_header;
using test::print_row;
using test::Row;
using test::row_of;
using test::Skewed;

/// A way to train on eight sequences a step.
struct Shared {
  std::int64_t outer = 1;
  std::int64_t shard = 1;
  std::int64_t cp = 1;
  Strategy strategy = Strategy::optim_grads_params;
  Strategy outer_strategy = Strategy::no_shard;
  Recompute recompute = Recompute::selective;
  std::int64_t pp = 1;
};

PlanConfig config_of(const Shared& shared, PlanConfig config) {
  config.mesh = data_parallel_mesh(shared.outer, shared.shard);
  config.mesh.resize(Axis::cp, shared.cp);
  config.mesh.resize(Axis::pp, shared.pp);
  config.strategy = shared.strategy;
  config.outer_strategy = shared.outer_strategy;
  config.recompute.kind = shared.recompute;
  config.microbatches = 8 / (shared.outer * shared.shard);
  config.exact_sums = true;
  return config;
}

/// Every mesh of up to eight ranks, with each strategy and recomputation.
std::vector<Shared> all_ways() {
  std::vector<Shared> all;
  for (const std::int64_t outer : {1, 2})
    for (const std::int64_t shard : {1, 2, 4, 8})
      for (const std::int64_t cp : {1, 2, 4}) {
        if (outer * shard * cp > 8) continue;
        for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full}) {
          for (int strategy = 0; strategy < 4; ++strategy)
            all.push_back(
                {outer, shard, cp, static_cast<Strategy>(strategy), Strategy::no_shard, recompute});
          if (outer > 1 && shard > 1)
            all.push_back(
                {outer, shard, cp, Strategy::optim_grads_params, Strategy::optim, recompute});
        }
      }
  return all;
}

std::vector<Shared> ways() {
  if (test::runs_all()) return all_ways();
  using enum Strategy;
  return {{.strategy = no_shard},
          {.shard = 2, .strategy = optim},
          {.cp = 2, .recompute = Recompute::none},
          {.cp = 4, .recompute = Recompute::full},
          {.shard = 2, .cp = 2},
          {.shard = 2, .cp = 2, .strategy = optim_grads},
          {.shard = 2, .cp = 4, .strategy = optim, .recompute = Recompute::none},
          {.cp = 2, .strategy = no_shard},
          {.outer = 2, .cp = 4},
          {.outer = 2, .shard = 2, .cp = 2, .outer_strategy = optim}};
}

void expect_one_result(const PlanConfig& shape, bool documents = false,
                       const std::vector<Shared>& ways = ways()) {
  const Skewed data(shape.model.vocab, 64, documents);
  std::map<std::string, Row> rows;
  for (const Shared& way : ways) {
    const PlanConfig config = config_of(way, shape);
    const auto begin = std::chrono::steady_clock::now();
    test::Told told = test::train(config, 2, data);
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    ASSERT_EQ(fault_of(told), "") << describe(config);
    EXPECT_TRUE(told.allocated_as_planned) << describe(config);
    const Row one = row_of(fmt::format("{} x {} x cp {}", way.outer, way.shard, way.cp), config,
                           std::move(told), taken.count());
    merge(rows.try_emplace(one.name, Row{.name = one.name}).first->second, one);
  }
  print_header("--exact-sums, by mesh; distinct weights, gradients and norms");
  Row all{.name = "all"};
  for (const auto& [name, row] : rows) {
    print_row(row);
    merge(all, row);
  }
  print_row(all);
  expect_one(all);
  EXPECT_EQ(all.combinations, std::ssize(ways));
}

PlanConfig four_heads() {
  PlanConfig config = test::nano(1);
  config.model.kv_heads = 4;
  config.logits_chunk = 4;
  return config;
}

TEST(ContextParallelRuns, GiveTheBitsOfOneRank) { expect_one_result(four_heads()); }

/// Ranks of each stage share sequences.
TEST(ContextParallelRuns, GiveThemInStages) {
  PlanConfig config = four_heads();
  config.model.tied_embeddings = false;
  config.document_mask = true;
  expect_one_result(config, true,
                    {{.strategy = Strategy::no_shard},
                     {.cp = 2, .strategy = Strategy::optim, .pp = 3},
                     {.shard = 2, .cp = 2, .recompute = Recompute::full, .pp = 2}});
}

/// Two query heads for each key head, biases, an untied head, and a sliding window that reaches
/// into the parts of other ranks.
TEST(ContextParallelRuns, GiveThemWithWindowsAndDocuments) {
  PlanConfig config = four_heads();
  config.model.heads = 8;
  config.model.qkv_bias = true;
  config.model.tied_embeddings = false;
  config.model.sliding_window = 6;
  config.model.sliding_layers = {0, 2};
  config.document_mask = true;
  expect_one_result(config, true);
}

}  // namespace
}  // namespace mfsdp
