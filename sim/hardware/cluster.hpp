// How many GPUs, in which nodes, and the network between them. topology.hpp draws the graph.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

inline constexpr double kBitsPerByte = 8;

/// How NICs connect to leaf switches. rail: NIC i of every node connects to leaf i. fat_tree: all
/// NICs of a node connect to one leaf.
enum class Fabric { rail, fat_tree };

/// A GPU's links. Concurrent transfers on one link share it: collectives inside a domain;
/// collectives between domains, through the GPU's share of the NICs; copies to and from host
/// memory, one link for each direction.
enum class LinkClass { node, network, host_to_device, device_to_host };

/// A node, or one of its NICs, that reaches only a fraction of its network bandwidth.
struct SlowPart {
  std::int64_t node = 0;
  std::optional<std::int64_t> nic;  ///< none: all NICs of the node
  double fraction = 1;              ///< of the nominal bandwidth
};

struct Cluster {
  Gpu gpu;
  std::int64_t gpus = 1;
  std::int64_t gpus_per_node = 1;
  std::int64_t nodes = 1;
  std::int64_t domain = 1;  ///< consecutive ranks that the fast link joins; several nodes in NVL72
  std::int64_t nics_per_node = 1;
  BytesPerNano nic_bandwidth = 0;  ///< of one NIC, per direction
  Nanos nic_latency;               ///< added to each hop between domains
  Fabric fabric = Fabric::rail;
  std::optional<std::int64_t> nodes_per_leaf;  ///< none: one leaf (or one of each rail) joins all
  double oversubscription = 1;  ///< bandwidth of a leaf's links down to nodes over those up
  Nanos switch_latency;         ///< of each switch on the way: one inside a leaf, three beyond
  bool simple_only = false;     ///< the network forbids NCCL's protocols LL and LL128
  std::vector<SlowPart> slow;   ///< entries of nodes beyond `nodes` have no effect
  std::string network;          ///< one line: what is assumed inside and between nodes

  /// A GPU's share of its node's NICs, per direction.
  [[nodiscard]] BytesPerNano network_bandwidth() const {
    return nic_bandwidth * static_cast<double>(nics_per_node) / static_cast<double>(gpus_per_node);
  }
  /// The smallest fraction of its bandwidth that any NIC of these nodes reaches.
  [[nodiscard]] double slowest_fraction() const;
};

/// GPUs of the usual machine (`node.gpus` of the GPU's file), as far as the link joins them.
[[nodiscard]] std::int64_t usual_node_size(const Gpu& gpu);

/// `gpus` GPUs of that kind in its usual machine, with a network that is never oversubscribed. Up
/// to `gpus_per_node` GPUs form one node; larger numbers must be a multiple of it. The error names
/// --gpus and both numbers. A node larger than the GPU's domain is an error.
[[nodiscard]] Result<Cluster> make_cluster(const Gpu& gpu, std::int64_t gpus,
                                           std::int64_t gpus_per_node);

/// The cluster of --cluster (format: cluster_file.hpp). `name_or_path` is a TOML file, or a name in
/// the folder `clusters` beside `gpus_dir`. `gpus_per_node` is the value of --gpus-per-node, if
/// given; it is used if the file has none, and must not contradict the file. The file's `domain`
/// may be larger than the GPU's; it must be a multiple or a divisor of a node. If the cluster's
/// NICs differ from those of the GPU file, that file's measurements between domains are dropped.
/// `gpus` must not exceed the file's number. The file's slow parts must exist.
[[nodiscard]] Result<Cluster> load_cluster(const std::string& name_or_path,
                                           const std::filesystem::path& gpus_dir, std::int64_t gpus,
                                           std::optional<std::int64_t> gpus_per_node);

/// The cluster with another network (--network-gbps): Gbit/s of all NICs of one node together, per
/// direction, as clouds advertise it; 0.001 to 10^6. Measurements between domains are dropped, as
/// they were made on another network.
[[nodiscard]] Result<Cluster> with_network(Cluster cluster, double gbits_per_second_per_node);

}  // namespace mfsdp
