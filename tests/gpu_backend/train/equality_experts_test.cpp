// Experts come to the same weights, bit for bit with --exact-sums, wherever they are.
//
// MFSDP_EQUALITY=full runs every combination for 20 steps, which takes minutes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <optional>
#include <vector>

#include "core/model/hf_config.hpp"
#include "tests/gpu_backend/train/equality_runs.hpp"
#include "tests/support/configurations.hpp"
#include "tests/support/samples.hpp"

namespace mfsdp {
namespace {

using test::expect_one;
using test::kGlobalBatch;
using test::print_header;
using test::print_row;
using test::Row;
using test::run_all;
using test::Skewed;
using test::steps;

/// Experts on one rank or expert-parallel over 2, 4 or 8, on up to 8 ranks in one group or two.
/// They are sharded as the rest or differently, with capacity for all rows or for a multiple of an
/// equal share. Bits must be equal, and bytes as planned. GPT-OSS's experts have biases, and
/// DeepSeek has a shared expert. With MFSDP_EQUALITY=full all schedules of such meshes are run,
/// else a ninth of them, and fewer of these two models.
TEST(Equality, OfExpertsDealtOut) {
  test::Sample sample;
  for (const Family family : {Family::olmoe, Family::gpt_oss, Family::deepseek}) {
    if (!sample.takes_next()) continue;
    ModelShape model = test::nano().model;
    test::make_family(model, family);
    model.experts = 8;
    if (family == Family::deepseek) {
      model.sigmoid_routing = model.normalised_routing = true;
      model.shared_intermediate = 6;
    } else {
      model.router_aux_loss = {1, 10};
    }
    const int every = test::runs_all() ? 1 : family == Family::olmoe ? 9 : 25;
    std::vector<PlanConfig> configs;
    std::int64_t number = 0;
    for (const PlanConfig& layout : test::layouts(model))
      for (const std::int64_t ep : {0, 2, 4, 8}) {
        const std::int64_t ranks = layout.mesh.size(Axis::dp_shard);
        if (ep > 0 && ranks % ep != 0) continue;
        if (number++ % every != 0) continue;
        PlanConfig& config = configs.emplace_back(layout);
        test::set_schedule(config, number);
        config.gather = config.reduce = Transport::nccl;
        config.exact_sums = true;
        config.expert_parallel = ep;
        config.mesh = with_expert_grid(config.mesh, ep);
        // Some are sharded otherwise than the rest: by each of the other strategies in turn.
        const bool has_own = ep > 0 && config.outer_strategy == Strategy::no_shard;
        if (has_own && number % 4 < 2)
          config.expert_strategy =
              static_cast<Strategy>((static_cast<int>(config.strategy) + 1 + number / 4 % 3) % 4);
        // Three quarters of a rank's rows for each other, which none of few steps comes to need but
        // GPT-OSS's: its router has biases, and some ranks' rows all go to one. In many steps
        // others come to prefer some experts as well.
        if (ep > 2 && number % 2 == 0 && family != Family::gpt_oss && !test::runs_all())
          config.capacity_factor = Rational{3 * ep, 4};
      }
    const Skewed data(model.vocab, kGlobalBatch * steps(), true);
    print_header(fmt::format("{}, experts dealt out, with --exact-sums", to_string(family)));
    Row all{.name = "all of them"};
    for (const Row& row : run_all(configs, data)) merge(all, row);
    print_row(all);
    expect_one(all);
    EXPECT_EQ(all.combinations, std::ssize(configs));
  }
}

/// A mesh of equal groups of ranks, with experts expert-parallel inside each group.
struct Grid {
  std::int64_t outer = 1;
  std::int64_t shard = 1;
  std::int64_t ep = 0;
  Strategy strategy = Strategy::optim_grads_params;
  Strategy outer_strategy = Strategy::no_shard;
  std::optional<Strategy> expert_strategy{};
};

/// All that 1 to 16 ranks allow for 8 experts; strategies in turn.
std::vector<Grid> all_grids() {
  std::vector<Grid> grids;
  for (const std::int64_t ranks : {1, 2, 4, 8, 16})
    for (std::int64_t outer = 1; outer <= ranks; outer *= 2)
      for (const std::int64_t ep : {0, 2, 4, 8}) {
        Grid grid{.outer = outer, .shard = ranks / outer, .ep = ep};
        if (ep > grid.shard) continue;
        grid.strategy = static_cast<Strategy>(std::ssize(grids) % 4);
        if (ep > 0) grid.expert_strategy = static_cast<Strategy>(std::ssize(grids) / 4 % 4);
        grids.push_back(grid);
        if (outer == 1) continue;
        grid.strategy = Strategy::optim_grads_params;
        grid.outer_strategy = Strategy::optim;
        grid.expert_strategy.reset();
        grids.push_back(grid);
      }
  return grids;
}

/// The models that the tools have by name, on one rank, on 8 and on 16: at most 8 hold the experts
/// of a block, in up to 8 groups. With MFSDP_EQUALITY=full on all such grids; few steps there too,
/// as gradients of so few tokens leave the range of exact sums once training has gone astray.
TEST(Equality, OfNamedModelsOnSixteenRanks) {
  using enum Strategy;
  const std::vector<Grid> some{
      {.outer = 1, .shard = 1, .ep = 0, .strategy = no_shard},
      {.outer = 2, .shard = 4, .ep = 4, .strategy = optim_grads},
      {.outer = 1, .shard = 16, .ep = 8, .expert_strategy = optim},
      {.outer = 2, .shard = 8, .ep = 4, .outer_strategy = optim},
      {.outer = 4, .shard = 4, .ep = 2, .expert_strategy = no_shard},
      {.outer = 1, .shard = 8, .ep = 2, .strategy = optim, .expert_strategy = optim_grads_params},
      {.outer = 2, .shard = 8, .ep = 8, .strategy = optim}};
  constexpr std::int64_t kSequences = 16;
  constexpr std::int64_t kSteps = test::kFewSteps;
  test::Sample sample;
  for (const char* name : {"moe_nano", "mla_nano"}) {
    if (!sample.takes_next()) continue;
    const auto model =
        load_model(name, std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models");
    ASSERT_TRUE(model) << model.error().message();
    std::vector<PlanConfig> configs;
    for (const Grid& grid : test::runs_all() ? all_grids() : some) {
      PlanConfig& config = configs.emplace_back();
      config.model = model->shape;
      config.mesh = with_expert_grid(data_parallel_mesh(grid.outer, grid.shard), grid.ep);
      config.expert_parallel = grid.ep;
      config.strategy = grid.strategy;
      config.outer_strategy = grid.outer_strategy;
      config.expert_strategy = grid.expert_strategy;
      config.seq_len = test::kTokens;
      config.micro_batch = kSequences / config.mesh.world_size();
      config.exact_sums = true;
    }
    const Skewed data(model->shape.vocab, kSequences * kSteps, true);
    print_header(fmt::format("{}, with --exact-sums", name));
    Row all{.name = "all of them"};
    for (const Row& row : run_all(configs, data, kSteps)) merge(all, row);
    print_row(all);
    expect_one(all);
    EXPECT_EQ(all.combinations, std::ssize(configs));
  }
}

}  // namespace
}  // namespace mfsdp
