// NCCL's own estimate of a collective: the model of its tuner (src/graph/tuning.cc, 2.28).
#pragma once

#include "core/plan/op.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// Ranks of one communicator, evenly over domains that are connected by a network.
struct NcclPath {
  double ranks = 2;
  double domains = 1;
  double leaves = 1;          ///< leaf switches of the domains, at most one each
  BytesPerNano bus = 0;       ///< bandwidth of the ring, all channels together, at its narrowest
  BytesPerNano tree_bus = 0;  ///< likewise of trees; read for all-reduce between domains only
  double channels = 24;       ///< rings, or trees, that share that bandwidth
  double leaf_hop_ns = 0;     ///< NICs and switches between domains of one leaf
  double spine_hop_ns = 0;    ///< between domains of different leaves
  bool simple_only = false;   ///< without the protocols LL and LL128
  LinkKind link = LinkKind::nvlink;
  double link_scale = 1;  ///< the link's bandwidth relative to H200's NVLink
};

struct NcclTime {
  double total_ns = 0;
  double latency_ns = 0;  ///< part of it in which the link is idle
};

/// Bytes that each rank sends: (n-1)/n of the full buffer, twice that for all-reduce.
[[nodiscard]] double wire_bytes(CollectiveKind kind, double full_bytes, double ranks);

/// Latency + bytes / bandwidth, the minimum over the protocols LL, LL128 and Simple and over
///   ring  n - 1 steps (all-reduce twice that), of which domains - 1 cross the network
///   tree  all-reduce between domains: 2 * (ranks in a domain - 1) steps inside and
///         2 * ceil(log2(domains)) between; its bandwidth sags for messages of middle size
///   PAT   all-gather and reduce-scatter with one rank in each domain: ceil(log2(domains)) steps
///         and 2.8 us a rank; three quarters of the bandwidth
/// Continuous and increasing in bytes. Bandwidths per channel and of LL have NCCL's limits. leaves
/// - 1 network hops of a ring, and ceil(log2(leaves)) of a tree, pass the spine. Not modelled: NVLS
/// and SHARP.
[[nodiscard]] NcclTime nccl_time(CollectiveKind kind, double full_bytes, const NcclPath& path);

}  // namespace mfsdp
