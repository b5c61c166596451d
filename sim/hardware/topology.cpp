#include "sim/hardware/topology.hpp"

#include <algorithm>
#include <array>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/dijkstra_shortest_paths.hpp>
#include <boost/graph/filtered_graph.hpp>
#include <boost/property_map/function_property_map.hpp>
#include <functional>
#include <limits>

namespace mfsdp {
namespace {

enum Device : std::size_t {
  gpu,
  link_switch,
  peer,
  nic,
  peer_nic,
  leaf,
  rail_leaf,  // of the peer's rail
  spine,
  far_leaf,
  leaf_nic,
  leaf_gpu,
  rail_nic,
  rail_gpu,
  far_nic,
  far_gpu,
  device_count
};

constexpr std::array<const char*, device_count> kDeviceNames{
    "gpu",      "switch",         "peer gpu",       "nic",      "peer nic",
    "leaf",     "peer's leaf",    "spine",          "far leaf", "leaf nic",
    "leaf gpu", "other rail nic", "other rail gpu", "far nic",  "far gpu"};

struct Link {
  BytesPerNano capacity = 0;
  std::int64_t latency = 0;
};

using LinkGraph =
    boost::adjacency_list<boost::vecS, boost::vecS, boost::undirectedS, boost::no_property, Link>;

void join_domain(LinkGraph& graph, const Gpu& kind) {
  if (kind.per_peer_bandwidth) {
    boost::add_edge(gpu, peer, Link{.capacity = *kind.per_peer_bandwidth}, graph);
    return;
  }
  boost::add_edge(gpu, link_switch, Link{.capacity = kind.link_bandwidth}, graph);
  boost::add_edge(link_switch, peer, Link{.capacity = kind.link_bandwidth}, graph);
}

/// Adds NICs, leaves and spine. A switch's latency is on the link by which a message enters it; a
/// NIC's latency is on the sender's link to the leaf.
void join_domains(LinkGraph& graph, const Cluster& cluster) {
  const bool rails = cluster.fabric == Fabric::rail;
  const double share = cluster.network_bandwidth();
  const std::int64_t hop = cluster.switch_latency.value;
  const Link host{.capacity = share};
  const Link sender{.capacity = share, .latency = cluster.nic_latency.value + hop};
  const Link up{.capacity = share / cluster.oversubscription, .latency = hop};
  const Link receiver{.capacity = share * cluster.slowest_fraction()};
  const Device other_leaf = rails ? rail_leaf : leaf;

  boost::add_edge(gpu, nic, host, graph);
  boost::add_edge(nic, leaf, sender, graph);
  boost::add_edge(leaf, leaf_nic, receiver, graph);
  boost::add_edge(leaf_nic, leaf_gpu, host, graph);
  boost::add_edge(leaf, spine, up, graph);
  boost::add_edge(spine, far_leaf, up, graph);
  boost::add_edge(far_leaf, far_nic, receiver, graph);
  boost::add_edge(far_nic, far_gpu, host, graph);

  boost::add_edge(other_leaf, rail_nic, receiver, graph);
  boost::add_edge(rail_nic, rail_gpu, host, graph);
  if (rails) boost::add_edge(spine, rail_leaf, up, graph);
  if (cluster.gpu.link == LinkKind::nvlink && cluster.domain > 1) {
    boost::add_edge(peer, peer_nic, host, graph);
    boost::add_edge(peer_nic, other_leaf, sender, graph);
  }
}

LinkGraph draw(const Cluster& cluster) {
  LinkGraph graph(device_count);
  if (cluster.gpus > 1 && cluster.domain > 1) join_domain(graph, cluster.gpu);
  if (cluster.gpus > cluster.domain) join_domains(graph, cluster);
  return graph;
}

template <class Values, class G>
auto by_vertex(Values& values, const G& graph) {
  return boost::make_iterator_property_map(values.begin(), boost::get(boost::vertex_index, graph));
}

/// Bandwidth of the widest path to each vertex: Dijkstra with (min, greater) in place of (+, less).
std::vector<double> widths(const LinkGraph& graph) {
  std::vector<double> width(device_count, 0);
  boost::dijkstra_shortest_paths(
      graph, static_cast<std::size_t>(gpu),
      boost::weight_map(boost::get(&Link::capacity, graph))
          .distance_map(by_vertex(width, graph))
          .distance_compare(std::greater<>())
          .distance_combine([](double path, double link) { return std::min(path, link); })
          .distance_inf(0.0)
          .distance_zero(std::numeric_limits<double>::infinity()));
  return width;
}

/// The shortest path to `goal` over links that are at least `width` wide.
Route shortest(const LinkGraph& graph, Device goal, double width) {
  if (width == 0) return {};
  constexpr std::int64_t kLatencyUnit = 1024;  // the low bits count links
  const auto wide = [&](const LinkGraph::edge_descriptor& link) {
    return graph[link].capacity >= width;
  };
  const boost::filtered_graph links(graph, std::function<bool(LinkGraph::edge_descriptor)>(wide));
  const auto weight = boost::make_function_property_map<LinkGraph::edge_descriptor>(
      [&](const LinkGraph::edge_descriptor& link) {
        return graph[link].latency * kLatencyUnit + 1;
      });
  std::vector<std::int64_t> distance(device_count);
  std::vector<std::size_t> before(device_count);
  boost::dijkstra_shortest_paths(links, static_cast<std::size_t>(gpu),
                                 boost::weight_map(weight)
                                     .distance_map(by_vertex(distance, links))
                                     .predecessor_map(by_vertex(before, links)));
  Route route{.bandwidth = width, .latency = Nanos(distance[goal] / kLatencyUnit), .via = {}};
  for (std::size_t at = goal; at != gpu; at = before[at]) route.via.emplace_back(kDeviceNames[at]);
  route.via.emplace_back(kDeviceNames[gpu]);
  std::ranges::reverse(route.via);
  return route;
}

}  // namespace

Routes find_routes(const Cluster& cluster) {
  const LinkGraph graph = draw(cluster);
  const std::vector<double> width = widths(graph);
  const auto to = [&](Device goal) { return shortest(graph, goal, width[goal]); };
  return {
      .domain = to(peer), .leaf = to(leaf_gpu), .other_rail = to(rail_gpu), .spine = to(far_gpu)};
}

}  // namespace mfsdp
