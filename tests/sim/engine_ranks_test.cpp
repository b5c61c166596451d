#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "sim/simulator/prices.hpp"
#include "sim/simulator/ranks.hpp"
#include "tests/sim/timed_plan.hpp"

namespace mfsdp {
namespace {

using test::Tiny;
using testing::ElementsAre;
using testing::HasSubstr;

Result<RankPartition> partition_of(const Program& program, const RankVariation& variation) {
  const ClassOfRanks all{.program = &program};
  return partition_ranks(std::span(&all, 1), variation);
}

RankPartition partition_of(std::int64_t dp_outer, std::int64_t dp_shard,
                           const RankVariation& variation) {
  Tiny tiny;
  tiny.mesh(dp_outer, dp_shard);
  auto partition = partition_of(tiny.program, variation);
  EXPECT_TRUE(partition.has_value()) << partition.error().message();
  return *partition;
}

std::vector<std::pair<std::int64_t, std::int64_t>> classes(const RankPartition& partition) {
  std::vector<std::pair<std::int64_t, std::int64_t>> classes;
  for (const Representative& one : partition.representatives)
    classes.emplace_back(one.rank, one.ranks);
  return classes;
}

/// The representatives that the i-th meets on a communicator of Tiny.
std::vector<std::uint32_t> meets(const RankPartition& partition, std::size_t i,
                                 std::size_t communicator) {
  return partition.groups[partition.group_of[i][communicator]];
}

constexpr SlowRank kSlow5{.rank = 5, .factor = {11, 10}};

TEST(Ranks, WithoutVariationAreOneClass) {
  const RankPartition partition = partition_of(3, 1'000'000, {});
  EXPECT_EQ(partition.ranks, 3'000'000);
  EXPECT_THAT(classes(partition), ElementsAre(std::pair(0, 3'000'000)));
  EXPECT_EQ(partition.representatives[0].kernel_time, kOne);
  EXPECT_THAT(meets(partition, 0, 0), ElementsAre(0));
}

TEST(Ranks, OneSlowRankOfAFlatMeshMakesTwoClasses) {
  const RankPartition partition = partition_of(1, 64, {.slow = {kSlow5}});
  EXPECT_THAT(classes(partition), ElementsAre(std::pair(0, 63), std::pair(5, 1)));
  EXPECT_EQ(partition.representatives[1].kernel_time, (11 * kOne + 5) / 10);
  EXPECT_THAT(meets(partition, 0, 0), ElementsAre(0, 1));
  EXPECT_THAT(meets(partition, 0, 2), ElementsAre(0));  // alone on dp_outer
}

TEST(Ranks, OneSlowRankOfTwoAxesMakesFourClasses) {
  // Rank 5 is outer 1, shard 1. Beside it: those of its dp_shard block (4, 6, 7), that of its
  // dp_outer column (1), and those that meet one of each but not the slow one (0, 2, 3).
  const RankPartition partition = partition_of(2, 4, {.slow = {kSlow5}});
  EXPECT_THAT(classes(partition),
              ElementsAre(std::pair(0, 3), std::pair(1, 1), std::pair(4, 3), std::pair(5, 1)));
  EXPECT_THAT(meets(partition, 0, 0), ElementsAre(0, 1));
  EXPECT_THAT(meets(partition, 2, 0), ElementsAre(2, 3));
  EXPECT_THAT(meets(partition, 0, 2), ElementsAre(0, 2));
  EXPECT_THAT(meets(partition, 1, 2), ElementsAre(1, 3));
  EXPECT_EQ(partition.group_of[2][0], partition.group_of[3][0]);
}

TEST(Ranks, EquallySlowRanksShareAClassWhereTheyMeetAlike) {
  // One slow rank in each block of four, at the same place: two classes, as for one block.
  const RankPartition partition =
      partition_of(2, 4, {.slow = {{.rank = 1, .factor = {2, 1}}, {.rank = 5, .factor = {2, 1}}}});
  EXPECT_THAT(classes(partition), ElementsAre(std::pair(0, 6), std::pair(1, 2)));
  EXPECT_THAT(meets(partition, 1, 2), ElementsAre(1));
}

TEST(Ranks, AFactorOfOneIsNoDifference) {
  const RankPartition partition = partition_of(2, 4, {.slow = {{.rank = 5, .factor = {1, 1}}}});
  EXPECT_THAT(classes(partition), ElementsAre(std::pair(0, 8)));
}

TEST(Ranks, ByRankGroupsFollowTheMesh) {
  for (const RankVariation& variation :
       {RankVariation{.by_rank = true}, RankVariation{.jitter = {1, 100}}}) {
    const RankPartition partition = partition_of(2, 3, variation);
    ASSERT_EQ(partition.representatives.size(), 6U);
    EXPECT_EQ(partition.representatives[4].rank, 4);
    EXPECT_THAT(meets(partition, 4, 0), ElementsAre(3, 4, 5));  // contiguous
    EXPECT_THAT(meets(partition, 4, 2), ElementsAre(1, 4));     // dp_shard apart
  }
}

TEST(Ranks, CommunicatorsOfBothAxesHoldAllRanks) {
  Tiny tiny;
  tiny.mesh(2, 2);
  tiny.program.communicators[1].axes = {Axis::dp_outer, Axis::dp_shard};
  tiny.program.communicators[2].axes = {};
  const auto partition = partition_of(tiny.program, {.by_rank = true});
  ASSERT_TRUE(partition.has_value());
  EXPECT_THAT(meets(*partition, 2, 1), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(meets(*partition, 2, 2), ElementsAre(2));
}

TEST(Ranks, WrongVariationsAreErrors) {
  const auto error = [](const RankVariation& variation, std::int64_t dp_shard = 8) {
    Tiny tiny;
    tiny.mesh(1, dp_shard);
    const auto partition = partition_of(tiny.program, variation);
    return partition ? "" : partition.error().message();
  };
  EXPECT_EQ(error({.jitter = {-1, 10}}), "--jitter: expected a share from 0 to 1, got -1/10");
  EXPECT_EQ(error({.jitter = {11, 10}}), "--jitter: expected a share from 0 to 1, got 11/10");
  EXPECT_EQ(error({.slow = {{.rank = 8}}}), "--slow-rank: expected a rank from 0 to 7, got 8");
  EXPECT_EQ(error({.slow = {{.rank = -1}}}), "--slow-rank: expected a rank from 0 to 7, got -1");
  EXPECT_EQ(error({.slow = {{.rank = 3}, {.rank = 3}}}), "--slow-rank: rank 3 is given twice");
  EXPECT_EQ(error({.slow = {{.rank = 3, .factor = {0, 1}}}}),
            "--slow-rank: expected a factor from 0.001 to 1000, got 0/1");
  EXPECT_EQ(error({.slow = {{.rank = 3, .factor = {1001, 1}}}}),
            "--slow-rank: expected a factor from 0.001 to 1000, got 1001/1");
  EXPECT_EQ(error({.by_rank = true}, 4097),
            "--by-rank: expected at most 4096 ranks that differ, got 4097");
  EXPECT_EQ(error({.jitter = {1, 10}}, 4097),
            "--jitter: expected at most 4096 ranks that differ, got 4097");
  EXPECT_THAT(error({.slow = {{.rank = 3}}}, 2'000'000),
              HasSubstr("ranks: expected at most 1048576 ranks"));
  EXPECT_THAT(error({}, 0), HasSubstr("mesh: expected at least 1 rank, got 0"));
}

}  // namespace
}  // namespace mfsdp
