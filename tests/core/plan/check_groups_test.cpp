// Configuration and groups must agree on the axes along which groups are sharded: checked for all
// pairs of strategies.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <limits>

#include "core/plan/check.hpp"
#include "tests/support/tiny_program.hpp"

namespace mfsdp {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr std::array kStrategies{Strategy::no_shard, Strategy::optim, Strategy::optim_grads,
                                 Strategy::optim_grads_params};

/// Groups that are cut by that strategy, of 2 groups of 2 ranks or of as many as the mesh has.
Program with_groups(Strategy strategy, Strategy outer = Strategy::no_shard,
                    std::int64_t outer_ranks = 1) {
  Program program = test::tiny_program();
  program.config.mesh = data_parallel_mesh(outer_ranks, 2);
  program.classes[0].ranks = 2 * outer_ranks;
  program.config.strategy = strategy;
  program.config.outer_strategy = outer;
  program.groups = make_groups(make_model(program.config), program.config);
  return program;
}

std::string complaint_of(const Program& program) {
  const auto checked = check_structure(program);
  return checked ? "" : checked.error().message();
}

TEST(CheckGroups, TheStrategyIsThatOfTheGroups) {
  for (const Strategy made : kStrategies)
    for (const Strategy stated : kStrategies) {
      Program program = with_groups(made);
      program.config.strategy = stated;
      if (made == stated)
        EXPECT_EQ(complaint_of(program), "");
      else
        EXPECT_THAT(complaint_of(program), StartsWith("groups[0]."))
            << to_string(made) << " as " << to_string(stated);
    }
  Program program = with_groups(Strategy::optim_grads_params);
  program.config.strategy = Strategy::no_shard;
  EXPECT_EQ(complaint_of(program),
            "groups[0].weight: expected [] to be cut, as config.strategy no_shard with "
            "config.outer_strategy no_shard has it on this mesh, got [dp_shard]");
}

TEST(CheckGroups, TheOuterStrategyIsThatOfTheGroups) {
  for (const Strategy made : {Strategy::no_shard, Strategy::optim})
    for (const Strategy stated : {Strategy::no_shard, Strategy::optim}) {
      Program program = with_groups(Strategy::optim_grads_params, made, 2);
      program.config.outer_strategy = stated;
      EXPECT_EQ(complaint_of(program).empty(), made == stated) << to_string(stated);
    }
}

/// On ranks of both axes these would be laid out alike.
TEST(CheckGroups, AxesOfOneSizeAreNotExchanged) {
  Program program = with_groups(Strategy::optim_grads_params, Strategy::no_shard, 2);
  for (Group& group : program.groups) {
    group.cut = {Axis::dp_outer};
    for (Placement* placement : {&group.weight, &group.gradient, &group.state})
      placement->front().axis = Axis::dp_outer;
  }
  EXPECT_THAT(complaint_of(program), StartsWith("groups[0].cut: expected [dp_shard] to be cut"));
}

/// The embedding's 24 x 8 elements are laid out for 2 ranks: shards of 96, chunks of 32.
TEST(CheckGroups, ShardsAreMultiplesOfTheChunk) {
  const auto with_chunk = [](std::int64_t chunk) {
    Program program = with_groups(Strategy::optim_grads_params);
    program.groups[0].chunk = chunk;
    return complaint_of(program);
  };
  EXPECT_EQ(with_groups(Strategy::optim_grads_params).groups[0].elements, 192);
  EXPECT_EQ(with_chunk(96), "");
  EXPECT_EQ(with_chunk(8), "");
  for (const std::int64_t chunk : {std::int64_t{0}, std::int64_t{-8}, std::int64_t{64},
                                   std::int64_t{192}, std::numeric_limits<std::int64_t>::max()})
    EXPECT_EQ(with_chunk(chunk),
              "groups[0].chunk: expected a number of elements that divides the "
              "96 of each of its 2 shards, got " +
                  std::to_string(chunk));
}

/// Both ranks of tp would have all weights.
TEST(CheckGroups, SomeGroupIsCutByRanksOnTp) {
  Program program = test::tiny_program();
  program.config.model.kv_heads = 2;
  program.groups = make_groups(make_model(program.config), program.config);
  program.config.mesh.resize(Axis::tp, 2);
  program.classes[0].ranks = 4;
  EXPECT_EQ(complaint_of(program), "config.mesh: has ranks on tp, but no group is cut along tp");
}

/// A frozen group has no buffer of gradient or state that would show their sharding.
TEST(CheckGroups, FrozenGroupsAreCutByTheStrategyToo) {
  Program program = test::tiny_program();
  program.config.frozen = {"embed_tokens"};
  program.groups = make_groups(make_model(program.config), program.config);
  ASSERT_EQ(complaint_of(program), "");
  for (Placement Group::* placement : {&Group::gradient, &Group::state}) {
    Program changed = program;
    const auto frozen = std::ranges::find(changed.groups, false, &Group::requires_grad);
    ASSERT_FALSE(((*frozen).*placement).empty());
    ((*frozen).*placement).clear();
    EXPECT_THAT(complaint_of(changed), HasSubstr("expected [dp_shard] to be cut"));
  }
}

}  // namespace
}  // namespace mfsdp
