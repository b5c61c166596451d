// GPUs, the links between them, and how wide those links are.
//
//   gpu --- switch --- peer gpu          inside a domain (NVLink, or PCIe where there is none)
//    |
//   nic --- fabric --- nic --- gpu       between domains
//
// Vertices stand for classes of devices, never for single ones: 16,384 GPUs cost as much as 8.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

struct Cluster {
  Gpu gpu;
  std::int64_t gpus = 1;
  std::int64_t gpus_per_node = 1;
  std::int64_t nodes = 1;
  std::int64_t domain = 1;  ///< consecutive ranks that the fast link joins; several nodes in NVL72
  std::int64_t nics_per_node = 1;
  BytesPerNano nic_bandwidth = 0;  ///< of one NIC, per direction
  Nanos nic_latency;               ///< added to each hop between domains
  std::string network;             ///< one line: what is assumed inside and between nodes

  /// A GPU's part of its node's NICs, per direction.
  [[nodiscard]] BytesPerNano network_bandwidth() const {
    return nic_bandwidth * static_cast<double>(nics_per_node) / static_cast<double>(gpus_per_node);
  }
};

/// `gpus` GPUs of that kind. Up to `gpus_per_node` are one node, otherwise they must be a multiple
/// of it; the error names --gpus and both numbers. A node larger than the GPU's domain is an error:
/// no such fabric is known.
[[nodiscard]] Result<Cluster> make_cluster(const Gpu& gpu, std::int64_t gpus,
                                           std::int64_t gpus_per_node);

/// Reads a cluster file: gpu (a catalogue name, or a GPU file relative to this one), and where they
/// differ from the GPU's usual machine gpus_per_node, domain, nics_per_node, nic_gb_per_s,
/// nic_latency_ns. `gpus_per_node` is --gpus-per-node where that was given; it may stand in for the
/// file's, and must not contradict it. A `domain` is taken as it stands. Errors as parse_gpu.
[[nodiscard]] Result<Cluster> load_cluster(const std::filesystem::path& file,
                                           const std::filesystem::path& gpus_dir, std::int64_t gpus,
                                           std::optional<std::int64_t> gpus_per_node);

/// Where a transfer stays: inside a domain, or on the network between domains.
enum class LinkClass { node, network };

/// The widest way between two neighbouring GPUs.
struct Route {
  BytesPerNano bandwidth = 0;    ///< of its narrowest link, per GPU and direction
  Nanos latency;                 ///< sum over its links, beside NCCL's own per-hop times
  std::vector<std::string> via;  ///< names of the vertices, ends included
};

/// The widest path from a GPU to one in its domain, or to one in another domain. Bandwidth is 0
/// where there is no such GPU.
[[nodiscard]] Route widest_route(const Cluster& cluster, LinkClass to);

}  // namespace mfsdp
