#include "sim/hardware/cluster.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "sim/hardware/catalogue.hpp"
#include "sim/hardware/cluster_file.hpp"

namespace mfsdp {
namespace {

std::string_view link_name(LinkKind kind) {
  switch (kind) {
    case LinkKind::nvlink: return "NVLink";
    case LinkKind::pcie: return "PCIe";
    case LinkKind::xgmi: return "xGMI";
  }
  return "";
}

/// Describes what a cluster file states besides NICs; empty if nothing. The most important part
/// comes first.
std::string describe_fabric(const Cluster& cluster) {
  std::string text;
  if (const double least = cluster.slowest_fraction(); least < 1)
    text += fmt::format(", slowest at {:g} %", 100 * least);
  if (cluster.oversubscription > 1)
    text += fmt::format(", {:g}:1 oversubscribed", cluster.oversubscription);
  if (cluster.nodes_per_leaf)
    text += fmt::format(", {}-node {}", *cluster.nodes_per_leaf,
                        cluster.fabric == Fabric::rail ? "rails" : "leaves");
  return text;
}

/// Fits a screen of 100 columns; the parts that a narrower screen cuts off come last.
std::string describe_network(const Cluster& cluster) {
  const Gpu& kind = cluster.gpu;
  if (cluster.gpus == 1) return "one GPU, no network";
  const std::string link = fmt::format("{} {:g} GB/s", link_name(kind.link), kind.link_bandwidth);
  if (cluster.gpus <= cluster.domain)
    return fmt::format("{} per GPU in domains of {}", link, std::min(cluster.domain, cluster.gpus));
  const std::string fabric = describe_fabric(cluster);
  const double hop =
      static_cast<double>((cluster.nic_latency + cluster.switch_latency).value) / 1000.0;
  const std::string_view origin = !kind.tables.network.empty() ? "fitted to measurements"
                                  : fabric.empty()             ? "modelled, not measured"
                                                               : "modelled";
  const std::string inside = cluster.domain == 1
                                 ? "no link between GPUs"
                                 : fmt::format("{} in domains of {}", link, cluster.domain);
  return fmt::format("{}; network {}: {} x {:g} GB/s a node, {:g} us/hop{}", inside, origin,
                     cluster.nics_per_node, cluster.nic_bandwidth, hop, fabric);
}

/// A link domain larger than the usual node (GB200 NVL72) contains a whole number of nodes. A job in
/// several domains takes equally many GPUs of each where it can, as schedulers place segments, so
/// that 256 GPUs are in 4 domains of 64.
std::int64_t domain_of(const Gpu& kind, std::int64_t gpus, std::int64_t gpus_per_node) {
  if (kind.domain <= kind.gpus_per_node) return gpus_per_node;
  const std::int64_t most = std::max(gpus_per_node, kind.domain / gpus_per_node * gpus_per_node);
  const std::int64_t domains = ceil_div(gpus, most);
  const bool is_even = gpus % domains == 0 && gpus / domains % gpus_per_node == 0;
  return domains > 1 && is_even ? gpus / domains : most;
}

/// Nodes of `gpus_per_node`; `source` names its origin: a flag, or a file and its key.
Result<Cluster> assemble(const Gpu& kind, std::int64_t gpus, std::int64_t gpus_per_node,
                         std::optional<std::int64_t> domain, const std::string& source) {
  constexpr std::int64_t kMost = 1 << 24;
  if (gpus_per_node < 1 || gpus_per_node > 65536)
    return fail(source, fmt::format("is {}; expected 1 to 65536", gpus_per_node));
  if (gpus < 1 || gpus > kMost)
    return fail("--gpus", fmt::format("is {}; expected 1 to {}", gpus, kMost));
  if (!domain && gpus_per_node > kind.domain)
    return fail(source,
                fmt::format("{} is more than the {} GPUs that one {} domain of {} joins (a larger "
                            "domain needs a cluster file: --cluster)",
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
      .domain = domain.value_or(domain_of(kind, gpus, gpus_per_node)),
      // The number of NICs scales with GPUs: half a node has half of them, but at least one.
      .nics_per_node = std::max<std::int64_t>(1, kind.nics_per_node * in_node / kind.gpus_per_node),
      .nic_bandwidth = kind.nic_bandwidth,
      .nic_latency = kind.nic_latency,
      .fabric = Fabric::rail,
      .nodes_per_leaf = std::nullopt,
      .oversubscription = 1,
      .switch_latency = {},
      .simple_only = false,
      .slow = {},
      .network = {}};
  return cluster;
}

/// The GPU that a cluster file names. An unknown name is an error of the file.
Result<Gpu> gpu_of(const ClusterFile& file, const std::filesystem::path& gpus_dir) {
  if (names_a_file(file.gpu))
    return load_gpu((file.path.parent_path() / file.gpu).string(), gpus_dir);
  auto kind = load_gpu(file.gpu, gpus_dir);
  if (!kind && kind.error().where == "--gpu")
    return fail(file.path.string() + ": gpu", kind.error().what, kind.error().fault);
  return kind;
}

/// --gpus-per-node, else the file's value, else that of the usual machine.
Result<std::int64_t> node_size(const ClusterFile& file, const Gpu& kind,
                               std::optional<std::int64_t> flag) {
  if (flag && file.gpus_per_node && *flag != *file.gpus_per_node)
    return fail("--gpus-per-node",
                fmt::format("{} contradicts --cluster {}, whose gpus_per_node is {}", *flag,
                            file.path.string(), *file.gpus_per_node));
  return file.gpus_per_node.value_or(flag.value_or(kind.gpus_per_node));
}

/// Measurements between domains hold only for the network on which they were made.
void forget_other_network(const Cluster& measured, Cluster& cluster) {
  constexpr double kSame = 1e-6;
  const double ratio = cluster.network_bandwidth() / measured.network_bandwidth();
  if (std::abs(ratio - 1) > kSame || cluster.nic_latency != measured.nic_latency)
    cluster.gpu.tables.network.clear();
}

void apply(const ClusterFile& file, Cluster& cluster) {
  cluster.nics_per_node = file.nics_per_node.value_or(cluster.nics_per_node);
  cluster.nic_bandwidth = file.nic_bandwidth.value_or(cluster.nic_bandwidth);
  cluster.nic_latency = file.nic_latency.value_or(cluster.nic_latency);
  cluster.fabric = file.fabric;
  cluster.nodes_per_leaf = file.nodes_per_leaf;
  cluster.oversubscription = file.oversubscription.value_or(cluster.oversubscription);
  cluster.switch_latency = file.switch_latency.value_or(cluster.switch_latency);
  cluster.simple_only = file.simple_only;
  cluster.gpu.host_launch = file.host_launch.value_or(cluster.gpu.host_launch);
  cluster.slow = file.slow;
}

/// Checks the file's values against each other, once all of them are known.
Result<void> check(const ClusterFile& file, const Cluster& cluster, std::int64_t gpus_per_node) {
  const std::string where = file.path.string();
  if (cluster.domain % gpus_per_node != 0 && gpus_per_node % cluster.domain != 0)
    return fail(where + ": domain",
                fmt::format("is {}; expected a multiple or a divisor of the {} GPUs of a node",
                            cluster.domain, gpus_per_node));
  const bool whole = cluster.gpus_per_node == gpus_per_node;  // false: a part of one node
  for (const SlowPart& part : file.slow) {
    if (file.gpus && part.node >= ceil_div(*file.gpus, gpus_per_node))
      return fail(where + ": slow",
                  fmt::format("there is no node {}: the cluster has {}, from 0 on", part.node,
                              ceil_div(*file.gpus, gpus_per_node)));
    if (whole && part.nic && *part.nic >= cluster.nics_per_node)
      return fail(where + ": slow", fmt::format("there is no NIC {}: a node has {}, from 0 on",
                                                *part.nic, cluster.nics_per_node));
  }
  return {};
}

}  // namespace

double Cluster::slowest_fraction() const {
  double least = 1;
  for (const SlowPart& part : slow)
    if (part.node < nodes) least = std::min(least, part.fraction);
  return least;
}

std::int64_t usual_node_size(const Gpu& gpu) { return std::min(gpu.gpus_per_node, gpu.domain); }

Result<Cluster> make_cluster(const Gpu& kind, std::int64_t gpus, std::int64_t gpus_per_node) {
  MFSDP_LET(cluster, assemble(kind, gpus, gpus_per_node, std::nullopt, "--gpus-per-node"));
  cluster.network = describe_network(cluster);
  return std::move(cluster);
}

Result<Cluster> load_cluster(const std::string& name_or_path, const std::filesystem::path& gpus_dir,
                             std::int64_t gpus, std::optional<std::int64_t> gpus_per_node) {
  MFSDP_LET(file, read_cluster_file(name_or_path, gpus_dir.parent_path() / "clusters"));
  MFSDP_LET(kind, gpu_of(file, gpus_dir));
  MFSDP_LET(per_node, node_size(file, kind, gpus_per_node));
  if (file.gpus && gpus > *file.gpus)
    return fail("--gpus", fmt::format("{} is more than the {} GPUs of --cluster {}", gpus,
                                      *file.gpus, file.path.string()));
  const std::string source =
      gpus_per_node ? "--gpus-per-node" : file.path.string() + ": gpus_per_node";
  MFSDP_LET(cluster, assemble(kind, gpus, per_node, file.domain, source));
  const Cluster usual = cluster;
  apply(file, cluster);
  forget_other_network(usual, cluster);
  MFSDP_TRY(check(file, cluster, per_node));
  cluster.network = describe_network(cluster);
  return std::move(cluster);
}

Result<Cluster> with_network(Cluster cluster, double gbits_per_second_per_node) {
  constexpr double kLeast = 0.001;
  constexpr double kMost = 1e6;
  if (!(gbits_per_second_per_node >= kLeast && gbits_per_second_per_node <= kMost))
    return fail("--network-gbps", fmt::format("is {}; expected {} to {} Gbit/s a node",
                                              gbits_per_second_per_node, kLeast, kMost));
  cluster.nic_bandwidth =
      gbits_per_second_per_node / kBitsPerByte / static_cast<double>(cluster.nics_per_node);
  // Measurements hold only for the network on which they were made.
  cluster.gpu.tables.network.clear();
  cluster.network = describe_network(cluster);
  return cluster;
}

}  // namespace mfsdp
