#include "sim/hardware/topology.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "tests/support/scenarios.hpp"

namespace mfsdp {
namespace {

using test::kGpus;
using testing::ElementsAre;
using testing::IsEmpty;

Cluster cluster_of(const std::string& gpu, std::int64_t gpus) {
  return *make_cluster(*load_gpu(gpu, kGpus), gpus, 8);
}

/// 128 nodes of eight H100 below leaves of 32, half as wide upwards as downwards.
Cluster leaves(Fabric fabric) {
  Cluster cluster = cluster_of("h100", 1024);
  cluster.fabric = fabric;
  cluster.nodes_per_leaf = 32;
  cluster.oversubscription = 2;
  cluster.switch_latency = Nanos(300);
  return cluster;
}

TEST(FindRoutes, FollowTheFastLinkInsideAndTheNicsBetween) {
  const Routes routes = find_routes(leaves(Fabric::rail));
  EXPECT_EQ(routes.domain.bandwidth, 450);
  EXPECT_EQ(routes.domain.latency, Nanos(0));
  EXPECT_THAT(routes.domain.via, ElementsAre("gpu", "switch", "peer gpu"));
  EXPECT_EQ(routes.leaf.bandwidth, 50);         // 8 NICs of 50 GB/s for 8 GPUs
  EXPECT_EQ(routes.leaf.latency, Nanos(2300));  // NIC and one switch
  EXPECT_THAT(routes.leaf.via, ElementsAre("gpu", "nic", "leaf", "leaf nic", "leaf gpu"));
  EXPECT_EQ(routes.spine.bandwidth, 25);         // 50 / 2
  EXPECT_EQ(routes.spine.latency, Nanos(2900));  // NIC and three switches
  EXPECT_THAT(routes.spine.via,
              ElementsAre("gpu", "nic", "leaf", "spine", "far leaf", "far nic", "far gpu"));
}

TEST(FindRoutes, RailsAreChangedInsideTheNode) {
  const Route nvlink = find_routes(leaves(Fabric::rail)).other_rail;
  EXPECT_EQ(nvlink.bandwidth, 50);  // across NVLink, not the spine's 25
  EXPECT_THAT(nvlink.via, ElementsAre("gpu", "switch", "peer gpu", "peer nic", "peer's leaf",
                                      "other rail nic", "other rail gpu"));
  Cluster pcie = leaves(Fabric::rail);
  pcie.gpu = *load_gpu("l40s", kGpus);
  const Route spine = find_routes(pcie).other_rail;
  EXPECT_EQ(spine.bandwidth, 25);
  EXPECT_EQ(spine.latency, Nanos(2900));
}

TEST(FindRoutes, AFatTreesLeafHasAllNicsOfANode) {
  Cluster pcie = leaves(Fabric::fat_tree);
  pcie.gpu = *load_gpu("l40s", kGpus);
  const Route other = find_routes(pcie).other_rail;
  EXPECT_EQ(other.bandwidth, 50);
  EXPECT_EQ(other.latency, Nanos(2300));
}

TEST(FindRoutes, OneSlowNicIsOnEveryRouteOfTheNetwork) {
  Cluster cluster = leaves(Fabric::rail);
  cluster.slow = {{.node = 5, .nic = 1, .fraction = 0.8},
                  {.node = 900, .nic = {}, .fraction = 0.1}};
  const Routes routes = find_routes(cluster);
  EXPECT_EQ(routes.domain.bandwidth, 450);
  EXPECT_EQ(routes.leaf.bandwidth, 40);  // 50 * 0.8; there is no node 900
  EXPECT_EQ(routes.other_rail.bandwidth, 40);
  EXPECT_EQ(routes.spine.bandwidth, 25);  // narrower than 40 already
}

TEST(FindRoutes, WithoutASwitchAPeerHasOneLink) {
  const Routes routes = find_routes(cluster_of("mi300x", 8));
  EXPECT_EQ(routes.domain.bandwidth, 64);
  EXPECT_THAT(routes.domain.via, ElementsAre("gpu", "peer gpu"));
}

TEST(FindRoutes, AreEmptyWhereThereIsNobody) {
  const Routes one_node = find_routes(cluster_of("h100", 8));
  EXPECT_EQ(one_node.leaf.bandwidth, 0);
  EXPECT_THAT(one_node.spine.via, IsEmpty());
  EXPECT_EQ(find_routes(cluster_of("h100", 1)).domain.bandwidth, 0);
}

}  // namespace
}  // namespace mfsdp
