// NCCL's own estimate of a collective: the model of its tuner (src/graph/tuning.cc).
#pragma once

#include "core/plan/op.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// Ranks of one communicator, evenly over domains that a network joins.
struct NcclPath {
  double ranks = 2;
  double domains = 1;
  BytesPerNano bus = 0;       ///< bandwidth of the ring at its narrowest link
  double nic_latency_ns = 0;  ///< of a hop between domains
  LinkKind link = LinkKind::nvlink;
  double link_scale = 1;  ///< the link's bandwidth relative to H200's NVLink
};

struct NcclTime {
  double total_ns = 0;
  double latency_ns = 0;  ///< part of it in which the link is idle
};

/// Bytes that each rank sends: (n-1)/n of the full buffer, twice that for all-reduce.
[[nodiscard]] double wire_bytes(CollectiveKind kind, double full_bytes, double ranks);

/// Latency + bytes / bandwidth, least over the protocols LL, LL128 and Simple and, for all-reduce
/// between domains, over ring and tree. Continuous and growing in bytes.
///   ring steps: n - 1 (all-reduce twice that), of which domains - 1 cross the network
///   tree steps: 2 * (ranks in a domain - 1) inside, 2 * ceil(log2(domains)) between
/// Left out: NVLS and PAT, caps per channel (they do not bind at these bus bandwidths), the tree's
/// corrections by size. Ten milliseconds of ring latency at thousands of ranks are NCCL's, not
/// ours.
[[nodiscard]] NcclTime nccl_time(CollectiveKind kind, double full_bytes, const NcclPath& path);

}  // namespace mfsdp
