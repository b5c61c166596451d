#include "core/plan/work.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/plan/config.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;
using enum Axis;

/// 48 ranks: 2 stages x 2 x 3 data ranks x 2 parts of a sequence x 2 parts of weights and rows.
/// The 24 of a stage are 2 x 3 x 2 x 2 for experts.
Mesh all_axes() {
  return {.dense = {{pp, 2}, {dp_outer, 2}, {dp_shard, 3}, {cp, 2}, {tp, 2}},
          .experts = {{pp, 2}, {expt_dp_outer, 2}, {expt_dp, 3}, {ep, 2}, {etp, 2}}};
}

Placement cut(std::vector<Axis> axes) {
  Placement placement;
  for (const Axis axis : axes)
    placement.push_back({.axis = axis, .kind = PlacementKind::shard, .dim = 0});
  return placement;
}

/// Each data rank is as many ranks as share its sequences: 48 / 6.
TEST(Work, RanksThatShareSequencesHaveOneDataIndex) {
  const Mesh mesh = all_axes();
  ASSERT_TRUE(check_mesh(mesh));
  EXPECT_EQ(data_ranks(mesh), 6);
  EXPECT_EQ(sequence_parts(mesh), 2);
  std::map<std::int64_t, int> ranks;
  for (std::int64_t rank = 0; rank < mesh.world_size(); ++rank) ++ranks[data_index(mesh, rank)];
  ASSERT_EQ(ranks.size(), 6);
  EXPECT_EQ(ranks.rbegin()->first, 5);
  for (const auto& [index, count] : ranks) EXPECT_EQ(count, 8) << index;
  // dp_shard is outside of cp and tp, which are 2 x 2 ranks.
  EXPECT_EQ(data_index(mesh, 3), 0);
  EXPECT_EQ(data_index(mesh, 4), 1);
}

/// Without other axes the data index is the rank, so that plans read what they always did.
TEST(Work, RanksOfDataParallelismAreDataRanks) {
  const Mesh mesh = with_expert_grid(data_parallel_mesh(3, 4), 2);
  EXPECT_EQ(data_ranks(mesh), 12);
  for (std::int64_t rank = 0; rank < 12; ++rank) EXPECT_EQ(data_index(mesh, rank), rank);
}

TEST(Work, ParametersThatAreWholeOnAnAxisAreSummedOverIt) {
  const Mesh mesh = all_axes();
  EXPECT_THAT(token_axes(mesh), ElementsAre(dp_outer, dp_shard, cp, tp));
  EXPECT_THAT(data_axes(mesh, {}), ElementsAre(dp_outer, dp_shard, cp, tp));
  EXPECT_THAT(data_axes(mesh, cut({tp})), ElementsAre(dp_outer, dp_shard, cp));
  EXPECT_THAT(data_axes(mesh, cut({ep})), ElementsAre(expt_dp_outer, expt_dp, etp));
  EXPECT_THAT(data_axes(mesh, cut({ep, etp})), ElementsAre(expt_dp_outer, expt_dp));
  EXPECT_EQ(ranks_on(data_axes(mesh, cut({ep, etp})), mesh), 6);
}

/// 2 sequences of 8 tokens for each of 6 data ranks and 3 microbatches; a rank has half of them.
TEST(Work, OfAConfiguration) {
  PlanConfig config;
  config.mesh = all_axes();
  config.seq_len = 8;
  config.micro_batch = 2;
  config.microbatches = 3;
  EXPECT_EQ(config.global_batch(), 2 * 3 * 6);
  EXPECT_EQ(config.global_tokens(), 8 * 2 * 3 * 6);
  EXPECT_EQ(config.tokens_per_microbatch(), 8 * 2 / 2);
}

}  // namespace
}  // namespace mfsdp
