// The file of --cluster as written. The number of GPUs that a job takes is not known yet.
//
//   title = "DGX H100"                 # optional, as everything but gpu
//   gpu = "h100"                       # catalogue name, or a GPU file relative to this one
//   gpus = 1024                        # in the cluster; --gpus must not exceed it
//   gpus_per_node = 8
//   domain = 8                         # consecutive GPUs that the fast link joins
//   nics_per_node = 8
//   nic_gbits_per_s = 400              # of one NIC, per direction; or nic_gb_per_s = 50
//   fabric = "rail"                    # NIC i of all nodes below leaf i; "fat_tree": all of a node
//   nodes_per_leaf = 32                # absent: one leaf joins all
//   oversubscription = 1.0             # leaf's links down over those up; 1 is none
//   nic_latency_ns = 2000              # each hop between domains, beside NCCL's own time for it
//   switch_latency_ns = 130            # of each switch: one below a leaf, three beyond
//   host_launch_ns = 4000              # of the host for a call of cudaLaunchKernel
//   protocols = "all"                  # "simple": a network without NCCL's LL and LL128
//   [[slow]]                           # any number; the first node and NIC are 0
//   node = 3
//   nic = 1                            # absent: all of the node
//   fraction = 0.5                     # of the nominal bandwidth
//   [source]                           # where each value is from
//   gpus_per_node = "vendor data sheet"
//
// Missing keys have the values of the GPU's usual machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "sim/hardware/cluster.hpp"

namespace mfsdp {

struct ClusterFile {
  std::filesystem::path path;
  std::string title;  ///< may be empty
  std::string gpu;    ///< as written
  std::optional<std::int64_t> gpus;
  std::optional<std::int64_t> gpus_per_node;
  std::optional<std::int64_t> domain;
  std::optional<std::int64_t> nics_per_node;
  std::optional<BytesPerNano> nic_bandwidth;
  Fabric fabric = Fabric::rail;
  std::optional<std::int64_t> nodes_per_leaf;
  std::optional<double> oversubscription;
  std::optional<Nanos> nic_latency;
  std::optional<Nanos> switch_latency;
  std::optional<Nanos> host_launch;
  bool simple_only = false;
  std::vector<SlowPart> slow;
  std::vector<std::pair<std::string, std::string>> sources;  ///< key -> its origin
};

/// Errors name line, key and what was expected: wrong type, unknown keys with the closest known
/// one, values out of range, two speeds of the NICs.
[[nodiscard]] Result<ClusterFile> parse_cluster_file(std::string_view text,
                                                     const std::filesystem::path& path);

/// `name_or_path`: a name in `clusters_dir`, or a TOML file, which contains a slash or ends in
/// ".toml". For an unknown name the error suggests the closest one.
[[nodiscard]] Result<ClusterFile> read_cluster_file(const std::string& name_or_path,
                                                    const std::filesystem::path& clusters_dir);

/// Sorted names of the files in the folder.
[[nodiscard]] Result<std::vector<std::string>> list_clusters(
    const std::filesystem::path& clusters_dir);

}  // namespace mfsdp
