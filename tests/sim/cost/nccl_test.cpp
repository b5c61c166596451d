#include "sim/cost/nccl.hpp"

#include <gtest/gtest.h>

namespace mfsdp {
namespace {

/// 16 ranks on two domains at 300 GB/s, 2 us from NIC to NIC.
constexpr NcclPath kTwoNodes{.ranks = 16,
                             .domains = 2,
                             .leaves = 1,
                             .bus = 300,
                             .tree_bus = 300,
                             .channels = 16,
                             .leaf_hop_ns = 2000,
                             .spine_hop_ns = 5000};

/// One rank on each of eight domains at 50 GB/s.
constexpr NcclPath kOneEach{.ranks = 8,
                            .domains = 8,
                            .leaves = 1,
                            .bus = 50,
                            .tree_bus = 50,
                            .channels = 2,
                            .leaf_hop_ns = 2000,
                            .spine_hop_ns = 5000};

TEST(Nccl, CountsWireBytes) {
  EXPECT_DOUBLE_EQ(wire_bytes(CollectiveKind::all_gather, 1e9, 16), 937.5e6);  // 15/16
  EXPECT_DOUBLE_EQ(wire_bytes(CollectiveKind::all_reduce, 1e9, 16), 1875e6);
}

TEST(Nccl, RingsByHand) {
  // 15 steps, one between. Simple: 8.4 + 14 * 3.4 + (14 + 2 * 2) = 74 us,
  // + 937.5 MB / 300 GB/s = 3,125 us
  const NcclTime large = nccl_time(CollectiveKind::all_gather, 1e9, kTwoNodes);
  EXPECT_NEAR(large.total_ns, 3'199'000, 1);
  EXPECT_NEAR(large.latency_ns, 74'000, 1e-3);
  // LL: 6.6 + 14 * max(0.6, 1) + (2.7 + 2) = 25.3 us, + 937.5 B / 39 GB/s
  const NcclTime small = nccl_time(CollectiveKind::all_gather, 1000, kTwoNodes);
  EXPECT_NEAR(small.total_ns, 25'300 + 937.5 / 39, 1e-3);
}

TEST(Nccl, HopsThroughTheSpineTakeLonger) {
  NcclPath two_leaves = kTwoNodes;
  two_leaves.leaves = 2;
  // The one hop between takes 5 us instead of 2; Simple pays that twice.
  const auto latency = [](double bytes, const NcclPath& path) {
    return nccl_time(CollectiveKind::all_gather, bytes, path).latency_ns;
  };
  EXPECT_NEAR(latency(1000, two_leaves) - latency(1000, kTwoNodes), 3'000, 1e-3);
  EXPECT_NEAR(latency(1e9, two_leaves) - latency(1e9, kTwoNodes), 6'000, 1e-3);
}

TEST(Nccl, TreesByHand) {
  // LL: 6.8 + 2 * (7 * 1 + 1 * (5 + 2)) = 34.8 us; the ring has 30 steps:
  // 6.6 + 28 + 2 * 4.7 = 44 us.
  EXPECT_NEAR(nccl_time(CollectiveKind::all_reduce, 0, kTwoNodes).total_ns, 34'800, 1e-3);
  // 2^20 bytes: 2^14 times 64, where LL128's correction is 0.6. LL128's tree takes
  // 14 + 2 * (7 * 1.25 + 8.5 + 2) = 52.5 us, + 1.966 MB / 0.6 / (300 * 0.92 * 120 / 128 GB/s)
  // = 12.7 us; LL's 34.8 us + 1.966 MB / 0.5 / 39 GB/s is more.
  EXPECT_NEAR(nccl_time(CollectiveKind::all_reduce, 1 << 20, kTwoNodes).total_ns,
              52'500 + 1'966'080 / 0.6 / 258.75, 1e-2);
}

TEST(Nccl, PatTakesFewSteps) {
  // Rings of one rank a domain pay the tree's network step: LL 6.6 + 7 * (5 + 2) = 55.6 us.
  // PAT: 8 + 3 * (14 + 2 * 2) / 3.5 + 8 * 2.8 = 45.83 us, at 0.75 of the bandwidth.
  const NcclTime small = nccl_time(CollectiveKind::reduce_scatter, 0, kOneEach);
  EXPECT_NEAR(small.total_ns, 8'000 + 3 * 18'000 / 3.5 + 22'400, 1e-3);
  EXPECT_NEAR(nccl_time(CollectiveKind::reduce_scatter, 1e6, kOneEach).total_ns - small.total_ns,
              875e3 / 37.5, 1e-3);
  // Large: a ring of Simple, 8.4 + 7 * (14 + 2 * 2) = 134.4 us + 875 MB / 50 GB/s.
  EXPECT_NEAR(nccl_time(CollectiveKind::reduce_scatter, 1e9, kOneEach).total_ns,
              134'400 + 875e6 / 50, 1e-2);
}

TEST(Nccl, SomeNetworksCarryOnlySimple) {
  NcclPath simple = kTwoNodes;
  simple.simple_only = true;
  // Ring 74 us as above; tree 8.4 + 2 * (7 * 4 + 14 + 2 * 2) = 100.4 us, ring of all-reduce
  // 1.4 * (8.4 + 28 * 3.4 + 2 * 18) = 195.4 us.
  EXPECT_NEAR(nccl_time(CollectiveKind::all_gather, 0, simple).total_ns, 74'000, 1e-3);
  EXPECT_NEAR(nccl_time(CollectiveKind::all_reduce, 0, simple).total_ns, 100'400, 1e-3);
}

TEST(Nccl, ChannelsLimitTrees) {
  // One rank on each of 64 domains at 100 GB/s, a gigabyte: 1.96875 GB to send.
  NcclPath wide = kOneEach;
  wide.ranks = wide.domains = 64;
  wide.bus = wide.tree_bus = 100;
  // A tree of Simple: 8.4 + 2 * 6 * (14 + 2 * 2) = 224.4 us, at 0.92 * 100 GB/s.
  wide.channels = 16;
  EXPECT_NEAR(nccl_time(CollectiveKind::all_reduce, 1e9, wide).total_ns,
              224'400 + 1'968'750'000 / 92.0, 1);
  // Two channels of at most 36 GB/s: the ring is faster, 1.4 * (8.4 + 126 * 18) = 3,187 us.
  wide.channels = 2;
  EXPECT_NEAR(nccl_time(CollectiveKind::all_reduce, 1e9, wide).total_ns,
              3'186'960 + 1'968'750'000 / 100.0, 1);
}

}  // namespace
}  // namespace mfsdp
