#include "sim/hardware/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <functional>
#include <limits>

#include "core/base/read_file.hpp"
#include "core/base/toml_fields.hpp"

namespace mfsdp {
namespace {

enum Device : std::size_t { gpu, peer, link_switch, nic, fabric, remote_nic, remote, device_count };

constexpr std::array<const char*, device_count> kDeviceNames{
    "gpu", "peer gpu", "switch", "nic", "fabric", "remote nic", "remote gpu"};

struct Link {
  BytesPerNano capacity = 0;
  std::int64_t latency = 0;
};

using Topology =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS, boost::no_property, Link>;

Topology make_topology(const Cluster& cluster) {
  Topology graph(device_count);
  const Gpu& kind = cluster.gpu;
  // Without a switch a neighbour is reached over its own link only.
  const double inside = kind.per_peer_bandwidth.value_or(kind.link_bandwidth);
  if (cluster.gpus > 1 && cluster.domain > 1) {
    boost::add_edge(gpu, link_switch, Link{.capacity = inside}, graph);
    boost::add_edge(link_switch, peer, Link{.capacity = inside}, graph);
  }
  if (cluster.gpus > cluster.domain) {
    const double share = cluster.network_bandwidth();
    boost::add_edge(gpu, nic, Link{.capacity = share}, graph);
    boost::add_edge(nic, fabric, Link{.capacity = share, .latency = cluster.nic_latency.value},
                    graph);
    boost::add_edge(fabric, remote_nic, Link{.capacity = share}, graph);
    boost::add_edge(remote_nic, remote, Link{.capacity = share}, graph);
  }
  return graph;
}

std::string_view link_name(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink: return "NVLink";
    case LinkKind::pcie: return "PCIe";
    case LinkKind::xgmi: return "xGMI";
  }
  return "";
}

std::string describe_network(const Cluster& cluster) {
  const Gpu& kind = cluster.gpu;
  if (cluster.gpus == 1) return "one GPU, no network";
  const std::int64_t domain = std::min(cluster.domain, cluster.gpus);
  const std::string_view link = link_name(kind.link);
  if (cluster.gpus <= cluster.domain)
    return fmt::format("{} {:g} GB/s per GPU in domains of {}", link, kind.link_bandwidth, domain);
  // Short enough for a screen of 100 columns; what is cut on a narrower one comes last.
  return fmt::format(
      "{} {:g} GB/s in domains of {}; network modelled, not measured: {} {} of {:g} GB/s a node, "
      "{:g} us/hop",
      link, kind.link_bandwidth, domain, cluster.nics_per_node,
      cluster.nics_per_node == 1 ? "NIC" : "NICs", cluster.nic_bandwidth,
      static_cast<double>(cluster.nic_latency.value) / 1000.0);
}

/// A fabric that joins more GPUs than the usual node holds (GB200 NVL72) joins whole nodes.
std::int64_t domain_of(const Gpu& kind, std::int64_t gpus_per_node) {
  if (kind.domain <= kind.gpus_per_node) return gpus_per_node;
  return std::max(gpus_per_node, kind.domain / gpus_per_node * gpus_per_node);
}

/// Nodes of `gpus_per_node`, a number that `source` gave: a flag, or a file and its key.
Result<Cluster> assemble(const Gpu& kind, std::int64_t gpus, std::int64_t gpus_per_node,
                         std::optional<std::int64_t> domain, const std::string& source) {
  constexpr std::int64_t kMost = 1 << 24;
  if (gpus_per_node < 1 || gpus_per_node > 65536)
    return fail(source, fmt::format("is {}; expected 1 to 65536", gpus_per_node));
  if (gpus < 1 || gpus > kMost)
    return fail("--gpus", fmt::format("is {}; expected 1 to {}", gpus, kMost));
  if (!domain && gpus_per_node > kind.domain)
    return fail(source,
                fmt::format("{} is more than the {} GPUs that one {} domain of {} joins (a cluster "
                            "file with its own domain may say otherwise: --cluster)",
                            gpus_per_node, kind.domain, link_name(kind.link), kind.name));
  const std::int64_t below = gpus / gpus_per_node * gpus_per_node;
  if (gpus > gpus_per_node && below != gpus)
    return fail("--gpus", fmt::format("{} GPUs do not fill nodes of {} ({}); expected at most {} "
                                      "or a multiple of it: the nearest are {} and {}",
                                      gpus, gpus_per_node, source, gpus_per_node, below,
                                      below + gpus_per_node));
  const std::int64_t in_node = std::min(gpus, gpus_per_node);
  Cluster cluster{
      .gpu = kind,
      .gpus = gpus,
      .gpus_per_node = in_node,
      .nodes = ceil_div(gpus, gpus_per_node),
      .domain = domain.value_or(domain_of(kind, gpus_per_node)),
      // NICs come with GPUs: a node half the usual size has half of them, but at least one.
      .nics_per_node = std::max<std::int64_t>(1, kind.nics_per_node * in_node / kind.gpus_per_node),
      .nic_bandwidth = kind.nic_bandwidth,
      .nic_latency = kind.nic_latency,
      .network = {}};
  return cluster;
}

}  // namespace

Result<Cluster> make_cluster(const Gpu& kind, std::int64_t gpus, std::int64_t gpus_per_node) {
  MFSDP_LET(cluster, assemble(kind, gpus, gpus_per_node, std::nullopt, "--gpus-per-node"));
  cluster.network = describe_network(cluster);
  return std::move(cluster);
}

Result<Cluster> load_cluster(const std::filesystem::path& file,
                             const std::filesystem::path& gpus_dir, std::int64_t gpus,
                             std::optional<std::int64_t> gpus_per_node) {
  constexpr FieldRange kCount{1, 65536};
  MFSDP_LET(text, read_file(file, "a cluster's TOML file", kMostTomlBytes));
  MFSDP_LET(fields, TomlFields::parse(text, file.string()));
  const std::string name = fields.text("gpu");
  const auto count = [&](std::string_view key) -> std::optional<std::int64_t> {
    if (!fields.optional_number(key, kCount)) return std::nullopt;
    return fields.integer(key, kCount);
  };
  const auto per_node = count("gpus_per_node");
  const auto domain = count("domain");
  const auto nics = count("nics_per_node");
  const auto bandwidth = fields.optional_number("nic_gb_per_s", FieldRange{0.01, 1e6});
  const auto latency = fields.optional_number("nic_latency_ns", FieldRange{0, 1e9});
  MFSDP_TRY(fields.finish());

  const bool is_file = name.find('/') != std::string::npos || name.ends_with(".toml");
  MFSDP_LET(kind, load_gpu(is_file ? (file.parent_path() / name).string() : name, gpus_dir));
  const std::string key = file.string() + ": gpus_per_node";
  if (per_node && gpus_per_node && *per_node != *gpus_per_node)
    return fail("--gpus-per-node",
                fmt::format("{} contradicts --cluster {}, whose gpus_per_node is {}",
                            *gpus_per_node, file.string(), *per_node));
  const std::int64_t nodes_of = per_node.value_or(gpus_per_node.value_or(kind.gpus_per_node));
  MFSDP_LET(cluster,
            assemble(kind, gpus, nodes_of, domain, gpus_per_node ? "--gpus-per-node" : key));
  cluster.nics_per_node = nics.value_or(cluster.nics_per_node);
  cluster.nic_bandwidth = bandwidth.value_or(cluster.nic_bandwidth);
  if (latency) cluster.nic_latency = Nanos(static_cast<std::int64_t>(*latency));
  cluster.network = describe_network(cluster);
  return std::move(cluster);
}

Route widest_route(const Cluster& cluster, LinkClass to) {
  constexpr double kUnlimited = std::numeric_limits<double>::infinity();
  const Topology graph = make_topology(cluster);
  std::vector<double> width(device_count, 0);
  std::vector<std::size_t> before(device_count);
  // Dijkstra with (min, greater) in place of (+, less) finds widest paths.
  boost::dijkstra_shortest_paths(
      graph, static_cast<std::size_t>(gpu),
      boost::weight_map(boost::get(&Link::capacity, graph))
          .distance_map(boost::make_iterator_property_map(width.begin(),
                                                          boost::get(boost::vertex_index, graph)))
          .predecessor_map(boost::make_iterator_property_map(
              before.begin(), boost::get(boost::vertex_index, graph)))
          .distance_compare(std::greater<>())
          .distance_combine([](double path, double link) { return std::min(path, link); })
          .distance_inf(0.0)
          .distance_zero(kUnlimited));
  const std::size_t goal = to == LinkClass::node ? peer : remote;
  Route route{.bandwidth = width[goal], .latency = {}, .via = {}};
  if (width[goal] == 0) return route;
  for (std::size_t at = goal; at != gpu; at = before[at]) {
    route.latency += Nanos(graph[boost::edge(before[at], at, graph).first].latency);
    route.via.emplace_back(kDeviceNames[at]);
  }
  route.via.emplace_back(kDeviceNames[gpu]);
  std::ranges::reverse(route.via);
  return route;
}

}  // namespace mfsdp
