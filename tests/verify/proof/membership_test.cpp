#include "core/plan/membership.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

/// Ranks of a mesh of 2 x 3: 0 1 2 / 3 4 5.
constexpr Mesh kMesh{.dp_outer = 2, .dp_shard = 3};

TEST(Membership, OfOneAxis) {
  const Membership shard({Axis::dp_shard}, kMesh);
  EXPECT_EQ(shard.size(), 3);
  EXPECT_EQ(shard.count(), 2);
  EXPECT_EQ(shard.rank(1, 2), 5);
  const Membership outer({Axis::dp_outer}, kMesh);
  EXPECT_EQ(outer.size(), 2);
  EXPECT_EQ(outer.count(), 3);
  EXPECT_EQ(outer.rank(1, 1), 4);
}

TEST(Membership, OfAllRanksAndOfOne) {
  const Membership world({Axis::dp_outer, Axis::dp_shard}, kMesh);
  EXPECT_EQ(world.size(), 6);
  EXPECT_EQ(world.count(), 1);
  EXPECT_EQ(world.rank(0, 4), 4);
  const Membership alone({}, kMesh);
  EXPECT_EQ(alone.size(), 1);
  EXPECT_EQ(alone.count(), 6);
  EXPECT_EQ(alone.rank(4, 0), 4);
}

TEST(Membership, EveryRankIsTheMemberThatItIs) {
  const std::vector<std::vector<Axis>> all{
      {}, {Axis::dp_shard}, {Axis::dp_outer}, {Axis::dp_outer, Axis::dp_shard}};
  for (const std::vector<Axis>& axes : all) {
    const Membership membership(axes, kMesh);
    for (std::int64_t rank = 0; rank < kMesh.world_size(); ++rank) {
      const Coordinates at = coordinates_of(rank, kMesh);
      EXPECT_EQ(membership.rank(membership.of(at), membership.member(at)), rank);
    }
  }
}

}  // namespace
}  // namespace mfsdp
