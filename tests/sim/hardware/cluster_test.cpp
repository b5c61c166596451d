#include "sim/hardware/cluster.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/base/read_file.hpp"
#include "sim/hardware/cluster_file.hpp"
#include "tests/support/scenarios.hpp"
#include "tests/support/scratch_folder.hpp"

namespace mfsdp {
namespace {

using test::kClusters;
using test::kGpus;
using testing::ElementsAre;
using testing::HasSubstr;

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
            "NVLink 450 GB/s in domains of 8; network modelled, not measured: 8 x 50 GB/s a "
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
  EXPECT_EQ(make_cluster(gb200, 256, 4)->domain, 64);      // four domains, equally full
  EXPECT_EQ(make_cluster(gb200, 148, 4)->domain, 72);      // three domains of 49.3: not possible
  EXPECT_EQ(make_cluster(gpu("h100"), 64, 4)->domain, 4);  // a node of four has its own
  EXPECT_EQ(make_cluster(gpu("h100"), 64, 4)->nics_per_node, 4);
}

TEST(MakeCluster, ANodeIsNotLargerThanTheDomain) {
  EXPECT_EQ(error_of(64, 64),
            "--gpus-per-node: 64 is more than the 8 GPUs that one NVLink domain of h100 joins (a "
            "larger domain needs a cluster file: --cluster)");
  EXPECT_EQ(make_cluster(gpu("gb200"), 72, 72)->domain, 72);
  EXPECT_FALSE(make_cluster(gpu("gb200"), 73, 73));
}

TEST(MakeCluster, TheNetworkFitsAScreenForEveryGpu) {
  const auto names = list_gpus(kGpus);
  for (const std::string& name : *names) {
    const Gpu kind = gpu(name);
    const Cluster cluster = *make_cluster(kind, 1024, std::min<std::int64_t>(8, kind.domain));
    EXPECT_LE(cluster.network.size(), 100u) << cluster.network;
    EXPECT_THAT(cluster.network, HasSubstr("modelled, not measured"));
  }
}

TEST(MakeCluster, HasNoLeavesNorSlowParts) {
  const Cluster cluster = *make_cluster(gpu("h100"), 64, 8);
  EXPECT_EQ(cluster.nodes_per_leaf, std::nullopt);
  EXPECT_EQ(cluster.oversubscription, 1);
  EXPECT_EQ(cluster.switch_latency, Nanos(0));
  EXPECT_EQ(cluster.slowest_fraction(), 1);
}

TEST(MakeCluster, SaysThatItsNetworkWasMeasured) {
  Gpu kind = gpu("h100");
  kind.tables.network = "mine_network.csv";
  const Cluster cluster = *make_cluster(kind, 64, 8);
  EXPECT_EQ(cluster.network,
            "NVLink 450 GB/s in domains of 8; network fitted to measurements: 8 x 50 GB/s a node, "
            "2 us/hop");
  EXPECT_LE(cluster.network.size(), 100u);
  // Another network was not measured, and its prices do not come from these measurements.
  const Cluster other = *with_network(cluster, 400);
  EXPECT_THAT(other.network, HasSubstr("modelled, not measured"));
  EXPECT_TRUE(other.gpu.tables.network.empty());
}

TEST(WithNetwork, IsWhatAllNicsOfANodeCarryTogether) {
  const Cluster cluster = *with_network(*make_cluster(gpu("h100"), 64, 8), 400);
  EXPECT_EQ(cluster.nic_bandwidth, 6.25);        // 400 Gbit/s / 8 bits / 8 NICs
  EXPECT_EQ(cluster.network_bandwidth(), 6.25);  // and 8 GPUs
  EXPECT_THAT(cluster.network, HasSubstr("8 x 6.25 GB/s a node"));
  const Cluster few = *with_network(*make_cluster(gpu("h100"), 64, 4), 100);
  EXPECT_EQ(few.network_bandwidth(), 3.125);  // 12.5 GB/s for 4 GPUs
  for (const double wrong : {0.0, -1.0, 1e7, std::nan("")})
    EXPECT_THAT(with_network(cluster, wrong).error().message(), HasSubstr("--network-gbps: is "));
}

/// A catalogue of clusters beside that of GPUs, and files of one's own.
class LoadCluster : public testing::Test {
 protected:
  Result<Cluster> load(const std::string& text, std::int64_t gpus = 64,
                       std::optional<std::int64_t> gpus_per_node = std::nullopt) {
    test::write_file(file_, text);
    return load_cluster(file_, kGpus, gpus, gpus_per_node);
  }
  std::string error_of(const std::string& text, std::int64_t gpus = 64) {
    const auto cluster = load(text, gpus);
    return cluster ? "no error" : cluster.error().message();
  }
  test::ScratchFolder folder_;
  std::string file_ = (folder_ / "mine.toml").string();
};

TEST_F(LoadCluster, OverridesTheUsualMachine) {
  const auto cluster = load(
      "gpu = \"h100\"\ngpus_per_node = 4\nnics_per_node = 1\nnic_gb_per_s = 25\n"
      "nic_latency_ns = 5000\nswitch_latency_ns = 500\nhost_launch_ns = 8000\nfabric = "
      "\"fat_tree\"\n"
      "nodes_per_leaf = 8\noversubscription = 2.5\n");
  ASSERT_TRUE(cluster) << cluster.error().message();
  EXPECT_EQ(cluster->nodes, 16);
  EXPECT_EQ(cluster->network_bandwidth(), 6.25);  // 25 / 4
  EXPECT_EQ(cluster->nic_latency, Nanos(5000));
  EXPECT_EQ(cluster->switch_latency, Nanos(500));
  EXPECT_EQ(cluster->gpu.host_launch, Nanos(8000));
  EXPECT_EQ(cluster->fabric, Fabric::fat_tree);
  EXPECT_EQ(cluster->nodes_per_leaf, 8);
  EXPECT_EQ(cluster->oversubscription, 2.5);
  EXPECT_EQ(cluster->network,
            "NVLink 450 GB/s in domains of 4; network modelled: 1 x 25 GB/s a node, 5.5 us/hop, "
            "2.5:1 oversubscribed, 8-node leaves");
}

TEST_F(LoadCluster, SpeedsMayBeInBits) {
  EXPECT_EQ(load("gpu = \"h100\"\nnic_gbits_per_s = 100\n")->nic_bandwidth, 12.5);
}

TEST_F(LoadCluster, TheFlagStandsInAndMustNotContradict) {
  EXPECT_EQ(load("gpu = \"h100\"\n")->gpus_per_node, 8);   // the usual machine
  EXPECT_EQ(load("gpu = \"gb200\"\n")->gpus_per_node, 4);  // a tray
  EXPECT_EQ(load("gpu = \"h100\"\n", 64, 4)->gpus_per_node, 4);
  EXPECT_EQ(load("gpu = \"h100\"\ngpus_per_node = 4\n", 64, 4)->gpus_per_node, 4);
  EXPECT_EQ(load("gpu = \"h100\"\ngpus_per_node = 4\n", 64, 8).error().message(),
            "--gpus-per-node: 8 contradicts --cluster " + file_ + ", whose gpus_per_node is 4");
}

TEST_F(LoadCluster, AClusterHasAnEnd) {
  EXPECT_EQ(load("gpu = \"h100\"\ngpus = 64\n", 64)->gpus, 64);
  EXPECT_EQ(load("gpu = \"h100\"\ngpus = 64\n", 16)->nodes, 2);
  EXPECT_EQ(error_of("gpu = \"h100\"\ngpus = 64\n", 72),
            "--gpus: 72 is more than the 64 GPUs of --cluster " + file_);
}

TEST_F(LoadCluster, ALargerNodeNeedsADomainOfItsOwn) {
  EXPECT_THAT(error_of("gpu = \"h100\"\ngpus_per_node = 16\n"),
              HasSubstr(".toml: gpus_per_node: 16 is more than the 8 GPUs"));
  const auto cluster = load("gpu = \"h100\"\ngpus_per_node = 16\ndomain = 16\n");
  ASSERT_TRUE(cluster) << cluster.error().message();
  EXPECT_EQ(cluster->domain, 16);
  EXPECT_EQ(cluster->nics_per_node, 16);                       // 8 of 8 GPUs, so 16 of 16
  EXPECT_EQ(load("gpu = \"h100\"\ndomain = 4\n")->domain, 4);  // half a node
  EXPECT_EQ(error_of("gpu = \"h100\"\ndomain = 12\n"),
            file_ + ": domain: is 12; expected a multiple or a divisor of the 8 GPUs of a node");
}

TEST_F(LoadCluster, SlowPartsOfTheNodesThatTakePart) {
  const std::string text =
      "gpu = \"h100\"\n[[slow]]\nnode = 3 # of 8\nfraction = 0.5\n"
      "[[slow]]\nnode = 1\nnic = 2\nfraction = 0.75\n[source]\ngpu = \"counted\"\n";
  const auto cluster = load(text);
  ASSERT_TRUE(cluster) << cluster.error().message();
  ASSERT_EQ(cluster->slow.size(), 2u);
  EXPECT_EQ(cluster->slow[0].node, 3);
  EXPECT_EQ(cluster->slow[0].nic, std::nullopt);
  EXPECT_EQ(cluster->slow[1].nic, 2);
  EXPECT_EQ(cluster->slowest_fraction(), 0.5);
  EXPECT_THAT(cluster->network, HasSubstr(", slowest at 50 %"));
  EXPECT_EQ(load(text, 16)->slowest_fraction(), 0.75);  // nodes 0 and 1 alone
}

TEST_F(LoadCluster, MistakesInSlowPartsKeepTheirLine) {
  const std::string head = "gpu = \"h100\"\nnics_per_node = 4\ngpus_per_node = 8\ngpus = 64\n";
  EXPECT_THAT(error_of(head + "[[slow]]\nnode = 1\nfractoin = 0.5\n"),
              HasSubstr("mine.toml:7: unknown key \"fractoin\"; the closest is \"fraction\""));
  EXPECT_THAT(error_of(head + "[[slow]]\nnode = 1\nfraction = 1.5\n"),
              HasSubstr("mine.toml:7: fraction is 1.5; expected a number from 0.001 to 1"));
  EXPECT_EQ(error_of(head + "[[slow]]\nnode = 1\nnic = 4\nfraction = 0.5\n"),
            file_ + ": slow: there is no NIC 4: a node has 4, from 0 on");
  EXPECT_EQ(error_of(head + "[[slow]]\nnode = 8\nfraction = 0.5\n"),
            file_ + ": slow: there is no node 8: the cluster has 8, from 0 on");
  EXPECT_THAT(error_of(head + "[[slow]]\n"), HasSubstr("2 keys are missing: node ("));
  EXPECT_THAT(error_of(head + "[slow]\nnode = 1\n"),
              HasSubstr("mine.toml:6: unknown key \"slow.node\""));
}

TEST_F(LoadCluster, NamesMistakes) {
  EXPECT_THAT(error_of("gpu = \"h100\"\nnics = 1\n"),
              HasSubstr(":2: unknown key \"nics\"; the closest is \"nics_per_node\""));
  EXPECT_THAT(error_of("gpu = \"h1o0\"\n"),
              HasSubstr("mine.toml: gpu: unknown GPU \"h1o0\"; the closest is \"h100\""));
  EXPECT_THAT(error_of("gpu = \"h100\"\ndomain = 0\n"), HasSubstr(":2: domain is 0"));
  EXPECT_THAT(error_of(""), HasSubstr("gpu is missing; expected text in quotes, such as \"h100\""));
  EXPECT_THAT(error_of("title = \"x\"\n[compute]\nbf16_tflops = 1\n"),
              HasSubstr("mine.toml: describes a GPU: give it to --gpu; --cluster takes a file that "
                        "names one, such as gpu = \"h100\", and its network"));
  EXPECT_THAT(error_of("gpu = \"h100\"\nfabric = \"mesh\"\n"),
              HasSubstr(":2: fabric must be \"rail\" or \"fat_tree\""));
  EXPECT_THAT(error_of("gpu = \"h100\"\nprotocols = \"LL\"\n"),
              HasSubstr(":2: protocols must be \"all\" or \"simple\""));
  EXPECT_THAT(error_of("gpu = \"h100\"\nnic_gb_per_s = 50\nnic_gbits_per_s = 400\n"),
              HasSubstr(":3: nic_gbits_per_s contradicts nic_gb_per_s; expected one"));
  EXPECT_THAT(error_of("gpu = \"h100\"\noversubscription = 0.5\nnodes_per_leaf = 8\n"),
              HasSubstr(":2: oversubscription is 0.5; expected a number from 1 to 1000"));
  EXPECT_THAT(error_of("gpu = \"h100\"\noversubscription = 2\n"),
              HasSubstr(":2: oversubscription has no effect without nodes_per_leaf"));
  EXPECT_THAT(error_of("gpu = \"h100\"\n[source]\ndomian = \"x\"\n"),
              HasSubstr(":3: source.domian is the source of no key; the closest is \"domain\""));
}

TEST(Clusters, NamesAreAnsweredWithTheClosest) {
  const auto misspelt = load_cluster("dgx_h10", kGpus, 64, std::nullopt);
  ASSERT_FALSE(misspelt);
  EXPECT_EQ(misspelt.error().message(),
            "--cluster: unknown cluster \"dgx_h10\"; the closest is \"dgx_h100\" (--list-clusters "
            "shows all; a TOML file works too)");
  const auto capitals = load_cluster("DGX-H100", kGpus, 64, std::nullopt);
  ASSERT_TRUE(capitals) << capitals.error().message();
  EXPECT_EQ(capitals->gpu.name, "h100");
  EXPECT_EQ(list_clusters("/nowhere").error().fault, Fault::environment);
}

TEST(Clusters, EveryShippedFileLoadsAndNamesItsSources) {
  const auto names = list_clusters(kClusters);
  ASSERT_TRUE(names) << names.error().message();
  EXPECT_THAT(*names, ElementsAre("cloud_a100_4x100", "dgx_a100", "dgx_b200", "dgx_h100",
                                  "dgx_h200", "gb200_nvl72", "gb300_nvl72"));
  for (const std::string& name : *names) {
    const auto file = read_cluster_file(name, kClusters);
    ASSERT_TRUE(file) << file.error().message();
    EXPECT_FALSE(file->title.empty());
    // Every value has a source: as many as there are lines "key = value" above [source], but title.
    const std::string text = *mfsdp::read_file(file->path, "a cluster", std::size_t{1} << 16);
    const std::string values = text.substr(0, text.find("[source]"));
    EXPECT_EQ(std::ssize(file->sources), std::ranges::count(values, '=') - 1) << name;
    const auto cluster = load_cluster(name, kGpus, 1440, std::nullopt);
    ASSERT_TRUE(cluster) << cluster.error().message();
    EXPECT_THAT(cluster->network, HasSubstr("network modelled"));
    EXPECT_LE(cluster->network.size(), 100u) << cluster->network;
  }
}

TEST(Clusters, HaveTheirNetworks) {
  const auto share = [](const std::string& name) {
    return load_cluster(name, kGpus, 144, std::nullopt)->network_bandwidth();
  };
  EXPECT_EQ(share("dgx_a100"), 25);            // 8 * 200 Gbit/s for 8 GPUs
  EXPECT_EQ(share("dgx_h100"), 50);            // 8 * 400
  EXPECT_EQ(share("gb200_nvl72"), 50);         // 4 * 400 for 4 GPUs
  EXPECT_EQ(share("cloud_a100_4x100"), 6.25);  // 4 * 100 for 8 GPUs
  EXPECT_EQ(load_cluster("gb200_nvl72", kGpus, 144, std::nullopt)->domain, 72);
  EXPECT_TRUE(load_cluster("cloud_a100_4x100", kGpus, 144, std::nullopt)->simple_only);
  EXPECT_FALSE(load_cluster("dgx_a100", kGpus, 144, std::nullopt)->simple_only);
}

}  // namespace
}  // namespace mfsdp
