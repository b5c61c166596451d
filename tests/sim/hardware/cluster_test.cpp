#include "sim/hardware/cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

namespace mfsdp {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

const std::filesystem::path kGpus = std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios/gpus";

Gpu gpu(const std::string& name) { return *load_gpu(name, kGpus); }

std::string error_of(std::int64_t gpus, std::int64_t gpus_per_node) {
  const auto cluster = make_cluster(gpu("h100"), gpus, gpus_per_node);
  return cluster ? "no error" : cluster.error().message();
}

TEST(MakeCluster, CountsNodes) {
  const auto cluster = make_cluster(gpu("h100"), 64, 8);
  ASSERT_TRUE(cluster);
  EXPECT_EQ(cluster->nodes, 8);
  EXPECT_EQ(cluster->gpus_per_node, 8);
  EXPECT_EQ(cluster->domain, 8);
  EXPECT_EQ(cluster->nics_per_node, 8);
  EXPECT_EQ(cluster->network_bandwidth(), 50);  // 8 NICs * 50 GB/s / 8 GPUs
  EXPECT_EQ(cluster->network,
            "NVLink 450 GB/s in domains of 8; network modelled, not measured: 8 NICs of 50 GB/s a "
            "node, 2 us/hop");
}

TEST(MakeCluster, FewerThanANodeIsOneNode) {
  const auto three = make_cluster(gpu("h100"), 3, 8);
  ASSERT_TRUE(three);
  EXPECT_EQ(three->nodes, 1);
  EXPECT_EQ(three->gpus_per_node, 3);
  EXPECT_EQ(three->network, "NVLink 450 GB/s per GPU in domains of 3");
  const auto one = make_cluster(gpu("h100"), 1, 8);
  ASSERT_TRUE(one);
  EXPECT_EQ(one->network, "one GPU, no network");
}

TEST(MakeCluster, ErrorsNameTheFlagAndTheNumbers) {
  EXPECT_EQ(error_of(12, 8),
            "--gpus: 12 GPUs do not fill nodes of 8 (--gpus-per-node); expected at most 8 or a "
            "multiple of it: the nearest are 8 and 16");
  EXPECT_THAT(error_of(0, 8), HasSubstr("--gpus: is 0"));
  EXPECT_THAT(error_of(-8, 8), HasSubstr("--gpus: is -8"));
  EXPECT_THAT(error_of(INT64_MAX, 8), HasSubstr("--gpus: is 9223372036854775807"));
  EXPECT_THAT(error_of(8, 0), HasSubstr("--gpus-per-node: is 0"));
  EXPECT_THAT(error_of(8, INT64_MAX), HasSubstr("--gpus-per-node: is 9223372036854775807"));
}

TEST(MakeCluster, NvlinkDomainsSpanWholeNodes) {
  const Gpu gb200 = gpu("gb200");                          // 72 GPUs in one domain
  EXPECT_EQ(make_cluster(gb200, 144, 4)->domain, 72);      // 18 trays
  EXPECT_EQ(make_cluster(gb200, 144, 8)->domain, 72);      // 9 * 8
  EXPECT_EQ(make_cluster(gb200, 160, 16)->domain, 64);     // 4 * 16, 72 / 16 = 4.5
  EXPECT_EQ(make_cluster(gpu("h100"), 64, 4)->domain, 4);  // a node of four has its own
  EXPECT_EQ(make_cluster(gpu("h100"), 64, 4)->nics_per_node, 4);
}

TEST(MakeCluster, ANodeIsNotLargerThanTheDomain) {
  EXPECT_EQ(error_of(64, 64),
            "--gpus-per-node: 64 is more than the 8 GPUs that one NVLink domain of h100 joins (a "
            "cluster file with its own domain may say otherwise: --cluster)");
  EXPECT_EQ(make_cluster(gpu("gb200"), 72, 72)->domain, 72);
  EXPECT_FALSE(make_cluster(gpu("gb200"), 73, 73));
}

TEST(MakeCluster, TheNetworkFitsAScreenForEveryGpu) {
  const auto names = list_gpus(kGpus);
  for (const std::string& name : *names) {
    const Cluster cluster = *make_cluster(gpu(name), 1024, 8);
    EXPECT_LE(cluster.network.size(), 100u) << cluster.network;
    EXPECT_THAT(cluster.network, HasSubstr("modelled, not measured"));
  }
}

TEST(WidestRoute, FollowsTheFastLinkInsideAndTheNicBetween) {
  const Cluster cluster = *make_cluster(gpu("h100"), 16384, 8);
  const Route inside = widest_route(cluster, LinkClass::node);
  EXPECT_EQ(inside.bandwidth, 450);
  EXPECT_EQ(inside.latency, Nanos(0));
  EXPECT_THAT(inside.via, ElementsAre("gpu", "switch", "peer gpu"));
  const Route between = widest_route(cluster, LinkClass::network);
  EXPECT_EQ(between.bandwidth, 50);
  EXPECT_EQ(between.latency, Nanos(2000));
  EXPECT_THAT(between.via, ElementsAre("gpu", "nic", "fabric", "remote nic", "remote gpu"));
}

TEST(WidestRoute, WithoutASwitchAPeerHasOneLink) {
  EXPECT_EQ(widest_route(*make_cluster(gpu("mi300x"), 8, 8), LinkClass::node).bandwidth, 64);
}

TEST(WidestRoute, IsEmptyWhereThereIsNobody) {
  const Cluster one_node = *make_cluster(gpu("h100"), 8, 8);
  EXPECT_EQ(widest_route(one_node, LinkClass::network).bandwidth, 0);
  EXPECT_THAT(widest_route(one_node, LinkClass::network).via, IsEmpty());
  const Cluster one_gpu = *make_cluster(gpu("h100"), 1, 8);
  EXPECT_EQ(widest_route(one_gpu, LinkClass::node).bandwidth, 0);
}

class LoadCluster : public testing::Test {
 protected:
  void SetUp() override {
    file_ = std::filesystem::temp_directory_path() /
            ("mfsdp_cluster_" + std::to_string(::getpid()) + ".toml");
  }
  void TearDown() override { std::filesystem::remove(file_); }
  Result<Cluster> load(const std::string& text,
                       std::optional<std::int64_t> gpus_per_node = std::nullopt) {
    std::ofstream(file_) << text;
    return load_cluster(file_, kGpus, 64, gpus_per_node);
  }
  std::filesystem::path file_;
};

TEST_F(LoadCluster, OverridesTheUsualMachine) {
  const auto cluster = load(
      "gpu = \"h100\"\ngpus_per_node = 4\nnics_per_node = 1\nnic_gb_per_s = 25\n"
      "nic_latency_ns = 5000\n");
  ASSERT_TRUE(cluster) << cluster.error().message();
  EXPECT_EQ(cluster->nodes, 16);
  EXPECT_EQ(cluster->network_bandwidth(), 6.25);  // 25 / 4
  EXPECT_EQ(cluster->nic_latency, Nanos(5000));
  EXPECT_THAT(cluster->network, HasSubstr("1 NIC of 25 GB/s a node, 5 us/hop"));
}

TEST_F(LoadCluster, TheFlagStandsInAndMustNotContradict) {
  EXPECT_EQ(load("gpu = \"h100\"\n")->gpus_per_node, 8);   // the usual machine
  EXPECT_EQ(load("gpu = \"gb200\"\n")->gpus_per_node, 4);  // a tray
  EXPECT_EQ(load("gpu = \"h100\"\n", 4)->gpus_per_node, 4);
  EXPECT_EQ(load("gpu = \"h100\"\ngpus_per_node = 4\n", 4)->gpus_per_node, 4);
  EXPECT_EQ(
      load("gpu = \"h100\"\ngpus_per_node = 4\n", 8).error().message(),
      "--gpus-per-node: 8 contradicts --cluster " + file_.string() + ", whose gpus_per_node is 4");
}

TEST_F(LoadCluster, ALargerNodeNeedsADomainOfItsOwn) {
  EXPECT_THAT(load("gpu = \"h100\"\ngpus_per_node = 16\n").error().message(),
              HasSubstr(".toml: gpus_per_node: 16 is more than the 8 GPUs"));
  const auto cluster = load("gpu = \"h100\"\ngpus_per_node = 16\ndomain = 16\n");
  ASSERT_TRUE(cluster) << cluster.error().message();
  EXPECT_EQ(cluster->domain, 16);
  EXPECT_EQ(cluster->nics_per_node, 16);  // 8 of 8 GPUs, so 16 of 16
}

TEST_F(LoadCluster, NamesMistakes) {
  EXPECT_THAT(load("gpu = \"h100\"\nnics = 1\n").error().message(),
              HasSubstr(":2: unknown key \"nics\"; the closest is"));
  EXPECT_THAT(load("gpu = \"h1o0\"\n").error().message(), HasSubstr("the closest is \"h100\""));
  EXPECT_THAT(load("gpu = \"h100\"\ndomain = 0\n").error().message(), HasSubstr(":2: domain is 0"));
  EXPECT_THAT(load("").error().message(), HasSubstr("gpu is missing"));
}

}  // namespace
}  // namespace mfsdp
