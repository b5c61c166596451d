#include "core/plan/mesh.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "core/plan/placement.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

/// Ranks of a mesh of 2 x 3: 0 1 2 / 3 4 5.
const Mesh kMesh = data_parallel_mesh(2, 3);

/// 48 ranks: two stages of 3 x 2 x 2 x 2; for experts each stage is 2 x 12.
Mesh large_mesh() {
  return {.dense = {{.axis = Axis::pp, .size = 2},
                    {.axis = Axis::dp_outer, .size = 3},
                    {.axis = Axis::dp_shard, .size = 2},
                    {.axis = Axis::cp, .size = 2},
                    {.axis = Axis::tp, .size = 2}},
          .experts = {{.axis = Axis::pp, .size = 2},
                      {.axis = Axis::expt_dp, .size = 2},
                      {.axis = Axis::ep, .size = 12}}};
}

TEST(Mesh, AxesOfOneRankAreLeftOut) {
  EXPECT_EQ(data_parallel_mesh(1, 1), Mesh{});
  EXPECT_EQ(data_parallel_mesh(1, 8).dense, (std::vector<MeshAxis>{{Axis::dp_shard, 8}}));
  EXPECT_EQ(data_parallel_mesh(4, 1).size(Axis::dp_shard), 1);
  EXPECT_EQ(data_parallel_mesh(4, 1).world_size(), 4);
}

TEST(Mesh, RankAndIndices) {
  const Mesh mesh = large_mesh();
  EXPECT_EQ(mesh.world_size(), 48);
  EXPECT_EQ(mesh.stride(Axis::tp), 1);
  EXPECT_EQ(mesh.stride(Axis::cp), 2);
  EXPECT_EQ(mesh.stride(Axis::dp_shard), 4);
  EXPECT_EQ(mesh.stride(Axis::dp_outer), 8);
  EXPECT_EQ(mesh.stride(Axis::pp), 24);
  EXPECT_EQ(mesh.stride(Axis::ep), 1);
  EXPECT_EQ(mesh.stride(Axis::expt_dp), 12);
  // 43 = 1 * 24 + 2 * 8 + 0 * 4 + 1 * 2 + 1, and 19 = 1 * 12 + 7 of its stage
  EXPECT_EQ(mesh.index(43, Axis::pp), 1);
  EXPECT_EQ(mesh.index(43, Axis::dp_outer), 2);
  EXPECT_EQ(mesh.index(43, Axis::dp_shard), 0);
  EXPECT_EQ(mesh.index(43, Axis::cp), 1);
  EXPECT_EQ(mesh.index(43, Axis::tp), 1);
  EXPECT_EQ(mesh.index(43, Axis::expt_dp), 1);
  EXPECT_EQ(mesh.index(43, Axis::ep), 7);
}

TEST(Mesh, ResizingKeepsTheOrderOfAxes) {
  Mesh mesh = data_parallel_mesh(2, 4);
  mesh.resize(Axis::pp, 3);
  mesh.resize(Axis::dp_outer, 1);
  mesh.resize(Axis::dp_shard, 5);
  EXPECT_EQ(mesh.dense, (std::vector<MeshAxis>{{Axis::pp, 3}, {Axis::dp_shard, 5}}));
}

/// The groups are those of the dense grid, and ranks of ep neighbours inside one.
TEST(Mesh, ExpertsAreDealtOutInsideEachGroup) {
  const Mesh mesh = with_expert_grid(data_parallel_mesh(2, 4), 2);
  EXPECT_EQ(mesh.experts,
            (std::vector<MeshAxis>{{Axis::expt_dp_outer, 2}, {Axis::expt_dp, 2}, {Axis::ep, 2}}));
  EXPECT_EQ(mesh.stride(Axis::expt_dp_outer), mesh.stride(Axis::dp_outer));
  EXPECT_EQ(mesh.index(6, Axis::expt_dp), 1);  // rank 6 is the third of the second group
  EXPECT_EQ(mesh.index(6, Axis::ep), 0);
  const Mesh all = with_expert_grid(data_parallel_mesh(2, 4), 4);
  EXPECT_EQ(all.experts, (std::vector<MeshAxis>{{Axis::expt_dp_outer, 2}, {Axis::ep, 4}}));
}

TEST(Mesh, ImpossibleGridsAreRefused) {
  EXPECT_TRUE(check_mesh(large_mesh()));
  const auto complaint = [](const std::function<void(Mesh&)>& spoil) {
    Mesh mesh = large_mesh();
    spoil(mesh);
    const auto checked = check_mesh(mesh);
    return checked ? "fine" : checked.error().message();
  };
  EXPECT_EQ(complaint([](Mesh& m) { m.dense[1].size = 1; }),
            "mesh.dense[1].size: expected at least 2 (an axis of one rank is left out), got 1");
  EXPECT_EQ(complaint([](Mesh& m) { m.dense[1].axis = Axis::tp; }),
            "mesh.dense[1].axis: tp is repeated");
  EXPECT_EQ(complaint([](Mesh& m) { m.dense[1].axis = Axis::ep; }),
            "mesh.dense[1].axis: ep is no axis of this grid");
  EXPECT_EQ(complaint([](Mesh& m) { std::swap(m.dense[2].axis, m.dense[3].axis); }),
            "mesh.dense[3].axis: expected dp_shard before cp");
  EXPECT_EQ(complaint([](Mesh& m) { m.experts[2].size = 6; }),
            "mesh.experts: expected 48 ranks as mesh.dense has, got 24");
  EXPECT_THAT(complaint([](Mesh& m) { m.experts[0] = {.axis = Axis::expt_dp_outer, .size = 2}; }),
              HasSubstr("expected pp outermost"));
}

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

/// Members share their index on every other axis of the grid, and are in the order of ranks.
TEST(Membership, PartsTheRanks) {
  const Mesh mesh = large_mesh();
  using enum Axis;
  const std::vector<std::vector<Axis>> all{
      {},   {pp},      {dp_shard},    {dp_outer, cp}, {pp, tp},
      {ep}, {expt_dp}, {expt_dp, ep}, {pp, expt_dp},  {dp_outer, dp_shard, cp}};
  for (const std::vector<Axis>& axes : all) {
    const Membership membership(axes, mesh);
    EXPECT_EQ(membership.size() * membership.count(), 48);
    const bool experts = !axes.empty() && axes.back() >= expt_dp_outer;
    std::set<std::int64_t> seen;
    for (std::int64_t c = 0; c < membership.count(); ++c)
      for (std::int64_t m = 0; m < membership.size(); ++m) {
        const std::int64_t rank = membership.rank(c, m);
        EXPECT_TRUE(seen.insert(rank).second);
        EXPECT_EQ(membership.of(rank), c);
        EXPECT_EQ(membership.member(rank), m);
        if (m > 0) {
          EXPECT_LT(membership.rank(c, m - 1), rank);
        }
        for (const auto& [axis, size] : experts ? mesh.experts : mesh.dense)
          if (std::ranges::find(axes, axis) == axes.end()) {
            EXPECT_EQ(mesh.index(rank, axis), mesh.index(membership.rank(c, 0), axis));
          }
      }
  }
}

TEST(Placement, FlatAxesCutInTheirOrder) {
  const Mesh mesh = data_parallel_mesh(3, 2);
  const AxisPlacement shard{.axis = Axis::dp_shard};
  const AxisPlacement outer{.axis = Axis::dp_outer};
  const AxisPlacement whole{.axis = Axis::dp_outer, .kind = PlacementKind::replicate, .dim = {}};
  EXPECT_THAT(flat_axes({shard, whole}), ElementsAre(Axis::dp_shard));
  // Rank 5 is the last of both axes; rank 2 has index 1 on dp_outer and 0 on dp_shard.
  EXPECT_EQ(interval_of(24, {}, mesh, 5), (Interval{0, 24}));
  EXPECT_EQ(interval_of(24, {shard, whole}, mesh, 5), (Interval{12, 24}));
  EXPECT_EQ(interval_of(24, {shard, outer}, mesh, 5), (Interval{20, 24}));
  EXPECT_EQ(interval_of(24, {shard, outer}, mesh, 2), (Interval{4, 8}));
  EXPECT_EQ(interval_of(24, {outer, shard}, mesh, 2), (Interval{8, 12}));
}

}  // namespace
}  // namespace mfsdp
