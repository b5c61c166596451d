// Collectives between nodes: what must hold on any network, and what others measured on some.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/sim/cost/cost_fixture.hpp"

namespace mfsdp {
namespace {

using testing_cost::cluster_of;
using testing_cost::kKinds;

CollectiveModel model_of(const Cluster& cluster) {
  return CollectiveModel(testing_cost::h200_tables().collective, cluster);
}

Cluster shipped(const std::string& name, std::int64_t gpus) {
  return load_cluster(name, testing_cost::kGpus, gpus, std::nullopt).value();
}

double ns(const CollectiveModel& model, CollectiveKind kind, double bytes,
          const CommunicatorShape& shape) {
  return static_cast<double>(
      model.cost(kind, Bytes(static_cast<std::int64_t>(bytes)), shape).duration.value);
}

TEST(Network, LargeMessagesAreBoundByBandwidth) {
  // 64 GPUs on eight nodes of eight 50 GB/s NICs: 400 GB/s * 0.86 = 344 GB/s leave a
  // node, less than its NVLink passes (the table's slope from 436 to 1024 MiB: 7/8 * 588 MiB in
  // 1.5336 ms are 351.8 GB/s). Twice the bytes take twice the time:
  const CollectiveModel model = model_of(cluster_of("h100", 64));
  const double one = ns(model, CollectiveKind::all_gather, 16e9, {.ranks = 64});
  const double two = ns(model, CollectiveKind::all_gather, 32e9, {.ranks = 64});
  EXPECT_NEAR(two - one, 63.0 / 64 * 16e9 / 344, 1e3);
  EXPECT_LT(two / one, 2);
  EXPECT_GT(two / one, 1.99);
  // Half the NICs, twice the time.
  const CollectiveModel half = model_of(*with_network(cluster_of("h100", 64), 1600));
  EXPECT_NEAR(ns(half, CollectiveKind::all_gather, 32e9, {.ranks = 64}) -
                  ns(half, CollectiveKind::all_gather, 16e9, {.ranks = 64}),
              2 * (two - one), 1e3);
}

TEST(Network, SmallMessagesAreBoundByLatency) {
  // LL's ring over 64 ranks on eight nodes: 6.6 + 56 * 1 + 7 * (2.7 + 2) = 95.5 us. A thousand
  // bytes or none, and half the bandwidth, are the same to 1 %.
  const Cluster cluster = cluster_of("h100", 64);
  const CollectiveModel full = model_of(cluster);
  const CollectiveModel half = model_of(*with_network(cluster, 1600));
  EXPECT_EQ(ns(full, CollectiveKind::all_gather, 0, {.ranks = 64}), 95'500);
  EXPECT_NEAR(ns(full, CollectiveKind::all_gather, 1000, {.ranks = 64}), 95'500, 955);
  EXPECT_NEAR(ns(half, CollectiveKind::all_gather, 1000, {.ranks = 64}), 95'500, 955);
  // A slower hop is what they feel: 7 more microseconds for each microsecond.
  Cluster slow = cluster;
  slow.nic_latency += Nanos(1000);
  EXPECT_EQ(ns(model_of(slow), CollectiveKind::all_gather, 0, {.ranks = 64}), 102'500);
}

/// All ranks of `domains` domains, and one rank in each.
std::array<CommunicatorShape, 2> across(const Cluster& cluster) {
  return {{{.ranks = cluster.gpus, .spacing = 1},
           {.ranks = cluster.gpus / cluster.domain, .spacing = cluster.domain}}};
}

TEST(Network, MoreNodesAreNeverFaster) {
  for (const std::string name : {"dgx_h100", "dgx_a100", "cloud_a100_4x100", "gb200_nvl72"}) {
    const Cluster one = shipped(name, 72);
    const std::int64_t most = 2048 * one.gpus_per_node / one.domain;  // domains
    std::map<std::tuple<CollectiveKind, double, std::size_t>, double> before;
    for (std::int64_t domains = 2; domains <= most; domains += domains < 80 ? 1 : domains / 7) {
      const Cluster cluster = shipped(name, one.domain * domains);
      const CollectiveModel model = model_of(cluster);
      const auto shapes = across(cluster);
      for (const CollectiveKind kind : kKinds) {
        for (const double bytes : {0.0, 1e4, 1e6, 1.6e7, 2.56e8, 4e9}) {
          for (std::size_t s = 0; s < shapes.size(); ++s) {
            const double time = ns(model, kind, bytes, shapes[s]);
            double& least = before[{kind, bytes, s}];
            EXPECT_GE(time, least) << name << ", " << domains << " domains, " << to_string(kind)
                                   << ", " << bytes << " bytes, spacing " << shapes[s].spacing;
            least = time;
          }
        }
      }
    }
  }
}

TEST(Network, LatencyGrowsWithoutEnd) {
  // A ring passes every rank, a tree every doubling: something more for each.
  for (const CollectiveKind kind : kKinds) {
    double before = 0;
    for (std::int64_t nodes = 2; nodes <= 2048; nodes *= 2) {
      const CollectiveModel model = model_of(shipped("dgx_h100", 8 * nodes));
      const double time = ns(model, kind, 0, {.ranks = 8 * nodes});
      EXPECT_GT(time, before) << nodes << " nodes, " << to_string(kind);
      EXPECT_EQ(model.cost(kind, Bytes(0), {.ranks = 8 * nodes}).link, LinkClass::network);
      before = time;
    }
  }
}

TEST(Network, SixteenThousandGpusByHand) {
  // 1,024 MiB over 16,384 GPUs in 2,048 nodes, as one ring:
  // LL128: 14 + 14,336 * 1.9 + 2,047 * (4 + 2.13) + 63 * 0.26 (leaves of 32 nodes: 64 of them)
  // = 39,816 us, + 1.0737 GB * 16383/16384 / (344 * 0.92 GB/s) = 3,393 us.
  const CollectiveModel model = model_of(shipped("dgx_h100", 16384));
  EXPECT_NEAR(ns(model, CollectiveKind::all_gather, 1073741824, {.ranks = 16384}),
              39'816'890 + 1073741824.0 * 16383 / 16384 / (344 * 0.92), 10);
}

TEST(Network, OneSlowNicSlowsItsRingsByItsRatio) {
  const double bytes = 8e9;
  Cluster cluster = cluster_of("h100", 64);
  const CollectiveModel even = model_of(cluster);
  cluster.slow = {{.node = 3, .nic = 5, .fraction = 0.4}};
  const CollectiveModel uneven = model_of(cluster);
  const auto transfer = [&](const CollectiveModel& model, const CommunicatorShape& shape) {
    return ns(model, CollectiveKind::all_gather, 2 * bytes, shape) -
           ns(model, CollectiveKind::all_gather, bytes, shape);
  };
  // All eight rings carry the same share, and one of them passes that NIC: 1 / 0.4 = 2.5.
  EXPECT_NEAR(transfer(uneven, {.ranks = 64}) / transfer(even, {.ranks = 64}), 2.5, 1e-6);
  // One rank in each node: the class costs what the communicator of that NIC does.
  const CommunicatorShape one_each{.ranks = 8, .spacing = 8};
  EXPECT_NEAR(transfer(uneven, one_each) / transfer(even, one_each), 2.5, 1e-6);
  // Inside a node nothing changes.
  EXPECT_EQ(transfer(uneven, {.ranks = 8}), transfer(even, {.ranks = 8}));
  // Nor does it where the job is too small to include that node.
  Cluster small = cluster_of("h100", 24);
  small.slow = cluster.slow;
  EXPECT_EQ(transfer(model_of(small), {.ranks = 24}),
            transfer(model_of(cluster_of("h100", 24)), {.ranks = 24}));
}

TEST(Network, TheSpineIsPaidWhereALeafIsLeft) {
  Cluster cluster = cluster_of("h100", 128);  // 16 nodes
  cluster.nodes_per_leaf = 4;
  cluster.oversubscription = 2;
  const CollectiveModel model = model_of(cluster);
  const auto transfer = [&](const CommunicatorShape& shape) {
    return ns(model, CollectiveKind::all_gather, 8e9, shape) -
           ns(model, CollectiveKind::all_gather, 4e9, shape);
  };
  // 4 nodes: 31/32 * 4 GB at 344 GB/s. 16 nodes: 127/128 of them at half of that.
  EXPECT_NEAR(transfer({.ranks = 32}), 31.0 / 32 * 4e9 / 344, 1e3);
  EXPECT_NEAR(transfer({.ranks = 128}), 127.0 / 128 * 4e9 / 172, 1e3);
  // Two ranks that lie a leaf apart cross it, two neighbours do not.
  EXPECT_NEAR(transfer({.ranks = 2, .spacing = 8}), 4e9 / 2 / 43, 1e3);     // 50 * 0.86
  EXPECT_NEAR(transfer({.ranks = 2, .spacing = 32}), 4e9 / 2 / 21.5, 1e3);  // half of it
  // Three nodes do not divide four: one such communicator lies on two leaves.
  EXPECT_NEAR(transfer({.ranks = 24}), 23.0 / 24 * 4e9 / 172, 1e3);
}

TEST(Network, RailsMatterWhereNvlinkCannotChangeThem) {
  // Ranks 0, 12, 24, 36 sit at places 0, 4, 0, 4 of nodes of eight.
  const CommunicatorShape skew{.ranks = 4, .spacing = 12};
  const auto time = [&](const std::string& gpu, Fabric fabric) {
    Cluster cluster = cluster_of(gpu, 48);
    cluster.fabric = fabric;
    cluster.oversubscription = 4;
    cluster.nodes_per_leaf = 6;
    return ns(model_of(cluster), CollectiveKind::all_gather, 1e9, skew);
  };
  EXPECT_EQ(time("h100", Fabric::rail), time("h100", Fabric::fat_tree));
  EXPECT_GT(time("l40s", Fabric::rail), 3.5 * time("l40s", Fabric::fat_tree));
}

TEST(Network, Nvl72HasNoneUpTo72) {
  for (const std::int64_t gpus : {8, 36, 64, 72}) {
    const CollectiveModel fast = model_of(shipped("gb200_nvl72", gpus));
    Cluster other = shipped("gb200_nvl72", gpus);
    other.nic_bandwidth /= 1000;
    other.nic_latency = Nanos(1'000'000);
    const CollectiveModel slow = model_of(other);
    for (const CollectiveKind kind : kKinds) {
      for (const double bytes : {0.0, 1e6, 1e9}) {
        const CollectiveCost cost =
            fast.cost(kind, Bytes(static_cast<std::int64_t>(bytes)), {.ranks = gpus});
        EXPECT_EQ(cost.link, LinkClass::node);
        EXPECT_EQ(static_cast<double>(cost.duration.value), ns(slow, kind, bytes, {.ranks = gpus}));
      }
    }
  }
  const CollectiveModel racks = model_of(shipped("gb200_nvl72", 144));
  EXPECT_EQ(racks.cost(CollectiveKind::all_gather, Bytes(1), {.ranks = 72}).link, LinkClass::node);
  EXPECT_EQ(racks.cost(CollectiveKind::all_gather, Bytes(1), {.ranks = 144}).link,
            LinkClass::network);
}

TEST(Network, AMessageIsHalfAnAllGatherOfTwoRanksOnTheLinksThatItCrosses) {
  const CollectiveModel model = model_of(cluster_of("h100", 64));
  const Bytes bytes(64 << 20);
  const auto message = [&](const PeerPath& path) { return model.message(bytes, path); };
  const auto pair = [&](std::int64_t spacing) {
    return model.cost(CollectiveKind::all_gather, bytes * 2, {.ranks = 2, .spacing = spacing});
  };
  EXPECT_EQ(message({}), pair(1));
  EXPECT_EQ(message({}).link, LinkClass::node);
  EXPECT_EQ(message({.domain = false}), pair(8));
  EXPECT_EQ(message({.domain = false}).link, LinkClass::network);
  // A GPU's own NIC of 50 GB/s, at 0.86 of it: 64 MiB in 1.56 ms.
  EXPECT_NEAR(static_cast<double>(message({.domain = false}).duration.value), 67.1e6 / 43, 5e4);
}

/// Four stages of four ranks on nodes of eight GPUs: stages 0 and 1 share a node, and 2 and 3.
TEST(Network, PeersCrossTheLinksBetweenTheirStages) {
  const Cluster cluster = cluster_of("h100", 16);
  Program stage;
  stage.config.mesh = {
      .dense = {{.axis = Axis::pp, .size = 4}, {.axis = Axis::dp_shard, .size = 4}}};
  const auto path = [&](std::int64_t index, std::int64_t step) {
    stage.classes = {{.role = "stage", .ranks = 4, .at = {{.axis = Axis::pp, .index = index}}}};
    return PeerPaths(stage, cluster).of({.axis = Axis::pp, .step = step});
  };
  EXPECT_TRUE(path(0, 1).domain);
  EXPECT_TRUE(path(1, -1).domain);
  EXPECT_FALSE(path(1, 1).domain);
  EXPECT_FALSE(path(1, 1).place);  // GPU 4 to GPU 0 of the next node
  EXPECT_TRUE(path(1, 2).place);
  EXPECT_TRUE(path(3, -1).domain);
}

TEST(Network, CommunicatorsWithHolesHaveTheDomainsOfTheirRanks) {
  // pp 2 x dp_outer 4 x dp_shard 4 on 32 GPUs, nodes of eight.
  const Mesh mesh{.dense = {{.axis = Axis::pp, .size = 2},
                            {.axis = Axis::dp_outer, .size = 4},
                            {.axis = Axis::dp_shard, .size = 4}}};
  const auto shape = [&](std::vector<Axis> axes, std::int64_t size) {
    return shape_of(Communicator{.id = {}, .axes = std::move(axes), .purpose = "", .size = size},
                    mesh);
  };
  EXPECT_EQ(shape({Axis::pp}, 2).spacing, 16);
  const CommunicatorShape holes = shape({Axis::pp, Axis::dp_shard}, 8);
  EXPECT_EQ(holes.spacing, 1);
  ASSERT_EQ(holes.sets.size(), 1);
  EXPECT_EQ(holes.sets[0].spacing, 16);
  const CollectiveModel model = model_of(cluster_of("h100", 32));
  // Four ranks on each of two nodes, as if the nodes had four GPUs; not eight on one.
  const auto cost = [&](const CommunicatorShape& of) {
    return model.cost(CollectiveKind::all_gather, Bytes(1 << 30), of);
  };
  EXPECT_EQ(cost(holes).link, LinkClass::network);
  EXPECT_EQ(cost({.ranks = 8}).link, LinkClass::node);
  EXPECT_TRUE(shape({Axis::pp, Axis::dp_outer, Axis::dp_shard}, 32).sets.empty());
}

TEST(Network, TwoNodesNeedOnlyHalfTheNetworkForATree) {
  // 2 x 8 A100 with 4 * 12.5 GB/s: rings send 2 * 15/16 of the buffer through 47.5 GB/s, trees
  // the buffer once each way at 0.92 of that: 89.06 * 0.92 = 81.9 GB/s of bus bandwidth.
  const CollectiveModel two = model_of(shipped("cloud_a100_4x100", 16));
  const double growth = ns(two, CollectiveKind::all_reduce, 8e9, {.ranks = 16}) -
                        ns(two, CollectiveKind::all_reduce, 4e9, {.ranks = 16});
  EXPECT_NEAR(2 * 15.0 / 16 * 4e9 / growth, 47.5 * 1.875 * 0.92, 0.1);
}

/// A row of scenarios/fidelity/network_public.csv: its origin, measured and modelled bandwidth.
struct PublicPoint {
  std::string name;
  double bytes = 0;
  double measured = 0;
  double modelled = 0;
};

std::vector<PublicPoint> public_points() {
  const std::string path =
      (testing_cost::kGpus.parent_path() / "fidelity" / "network_public.csv").string();
  const CsvTable table =
      CsvTable::parse(read_file(path, "a table", std::size_t{1} << 20).value(), path).value();
  const auto cell = [&](std::size_t row, const char* column) {
    return table.cell(row, table.column(column).value());
  };
  const auto number = [&](std::size_t row, const char* column) {
    return table.number(row, table.column(column).value()).value();
  };
  std::vector<PublicPoint> points;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const auto gpus = static_cast<std::int64_t>(number(row, "gpus"));
    const Gpu gpu = load_gpu(cell(row, "gpu"), testing_cost::kGpus).value();
    Cluster cluster = make_cluster(gpu, gpus, gpu.gpus_per_node).value();
    cluster.domain = gpus / static_cast<std::int64_t>(number(row, "nodes"));
    const CollectiveKind kind = cell(row, "collective") == "all_reduce"
                                    ? CollectiveKind::all_reduce
                                    : CollectiveKind::all_gather;
    const double bytes = number(row, "bytes");
    const double time = ns(model_of(cluster), kind, bytes, {.ranks = gpus});
    points.push_back(
        {.name = cell(row, "collective") + " " + cell(row, "gpu") + " " + cell(row, "gpus"),
         .bytes = bytes,
         .measured = number(row, "busbw_gb_per_s"),
         .modelled = wire_bytes(kind, bytes, static_cast<double>(gpus)) / time});
  }
  return points;
}

TEST(Network, AgreesWithMostPublicMeasurementsOfLargeAllReduces) {
  // Points that the model does not explain; sim/cost/README.md lists them.
  const std::map<std::string, std::string> unexplained{
      {"all_gather h100 256", "one iteration over RoCE; 44 % too fast"},
      {"all_reduce gb200 1440", "47 % too fast: fewer NICs in use than a rack has"}};
  int close = 0;
  double errors = 0;
  for (const PublicPoint& point : public_points()) {
    RecordProperty(point.name + " " + std::to_string(std::llround(point.bytes)),
                   std::to_string(point.modelled));
    if (unexplained.contains(point.name) || point.bytes < 5e8) continue;
    ++close;
    errors += std::abs(point.modelled / point.measured - 1);
    EXPECT_NEAR(point.modelled, point.measured, 0.20 * point.measured) << point.name;
  }
  EXPECT_EQ(close, 10);
  EXPECT_LT(errors / close, 0.08);
}

}  // namespace
}  // namespace mfsdp
