// Paths between GPUs of a cluster, as a graph of classes of devices.
//
//   gpu --- link switch --- peer             inside a domain (without a switch: gpu --- peer)
//    |
//   nic --- leaf --- nic --- gpu             between domains of one leaf
//            |
//          spine --- leaf --- nic --- gpu    between leaves
//
// A vertex stands for all devices of its kind, so 16,384 GPUs cost as much as 8. An edge has one
// GPU's share of the bandwidth, as all GPUs may use it at once.
#pragma once

#include <string>
#include <vector>

#include "core/base/quantity.hpp"
#include "sim/hardware/cluster.hpp"

namespace mfsdp {

/// The widest path between two GPUs; among equally wide ones the one with the lowest latency, then
/// with the fewest links.
struct Route {
  BytesPerNano bandwidth = 0;    ///< of its narrowest link, per GPU and direction; 0: no such GPU
  Nanos latency;                 ///< of NICs and switches, beside NCCL's own times per hop
  std::vector<std::string> via;  ///< names of the vertices, ends included
};

/// From a GPU to its nearest neighbour at each place.
struct Routes {
  Route domain;      ///< inside its domain
  Route leaf;        ///< in another domain, at the same place of its node, below the same leaf
  Route other_rail;  ///< as leaf, but at another place of its node
  Route spine;       ///< in another domain, below another leaf
};

/// Network links have the bandwidth of a GPU's share of its node's NICs. Links between leaf and
/// spine have that divided by the oversubscription, as if all nodes of a leaf used the spine at
/// once. Every remote NIC has the speed of the cluster's slowest one, as a class of communicators
/// costs as much as its slowest member. On a rail fabric, a GPU at another place is reached through
/// NVLink and that GPU's own rail (NCCL's PXN), or else through the spine.
[[nodiscard]] Routes find_routes(const Cluster& cluster);

}  // namespace mfsdp
