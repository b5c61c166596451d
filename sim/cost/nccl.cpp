#include "sim/cost/nccl.hpp"

#include <algorithm>
#include <array>

namespace mfsdp {
namespace {

/// Constants of one protocol, microseconds as in NCCL's tables.
struct Protocol {
  double ring_base = 0;
  double tree_base = 0;
  double ring_nvlink = 0;
  double ring_pcie = 0;
  double ring_net = 0;
  double tree_nvlink = 0;
  double tree_net = 0;
  bool simple = false;
};

constexpr Protocol kLl{.ring_base = 6.6,
                       .tree_base = 6.8,
                       .ring_nvlink = 0.6,
                       .ring_pcie = 1.0,
                       .ring_net = 2.7,
                       .tree_nvlink = 0.6,
                       .tree_net = 5.0,
                       .simple = false};
constexpr Protocol kLl128{.ring_base = 14,
                          .tree_base = 14,
                          .ring_nvlink = 1.9,
                          .ring_pcie = 2.5,
                          .ring_net = 4.0,
                          .tree_nvlink = 1.25,
                          .tree_net = 8.5,
                          .simple = false};
constexpr Protocol kSimple{.ring_base = 8.4,
                           .tree_base = 8.4,
                           .ring_nvlink = 3.4,
                           .ring_pcie = 5.7,
                           .ring_net = 14,
                           .tree_nvlink = 4.0,
                           .tree_net = 14,
                           .simple = true};
constexpr double kNanosPerMicro = 1e3;
constexpr double kAllReduceSimpleFactor = 1.4;  // of the latency between domains
constexpr double kTreeShare = 0.92;             // of the bus that a tree reaches
constexpr double kLl128Share = 0.92;            // 120 of 128 bytes carry data, and some cost
constexpr double kLlShare = 0.5;                // 4 of 8 bytes carry data
constexpr double kTreeLlDivisor = 3.8;

/// LL's own limit, NCCL's Hopper values for 1, 2 and more domains.
double ll_limit(const NcclPath& path) {
  if (path.domains <= 1) return 141 * path.link_scale;
  return (path.domains <= 2 ? 45 : 35) * path.link_scale;
}

/// A hop inside a domain. Beside a network every step waits for its proxy's overhead too.
double inside_hop(const Protocol& protocol, double hop, const NcclPath& path) {
  if (path.domains <= 1) return hop;
  const double overhead = (path.link == LinkKind::xgmi ? 2.0 : 1.0) * (protocol.simple ? 3.0 : 1.0);
  return std::max(hop, overhead);
}

double network_latency(const Protocol& protocol, const NcclPath& path) {
  return path.nic_latency_ns / kNanosPerMicro * (protocol.simple ? 2.0 : 1.0);
}

double ring_latency(const Protocol& protocol, CollectiveKind kind, const NcclPath& path) {
  const bool all_reduce = kind == CollectiveKind::all_reduce;
  const double rounds = all_reduce ? 2 : 1;
  const double between = rounds * (path.domains - 1);
  const double inside = rounds * (path.ranks - 1) - between;
  const double hop = path.link == LinkKind::pcie ? protocol.ring_pcie : protocol.ring_nvlink;
  const double latency = protocol.ring_base + inside * inside_hop(protocol, hop, path) +
                         between * (protocol.ring_net + network_latency(protocol, path));
  const bool slow = all_reduce && protocol.simple && path.domains > 1;
  return latency * (slow ? kAllReduceSimpleFactor : 1.0);
}

double tree_latency(const Protocol& protocol, const NcclPath& path) {
  double levels = 0;
  for (double reach = 1; reach < path.domains; reach *= 2) ++levels;
  const double inside = std::max(0.0, path.ranks / path.domains - 1);
  const double hop = path.link == LinkKind::pcie ? protocol.ring_pcie : protocol.tree_nvlink;
  return protocol.tree_base + 2 * (inside * inside_hop(protocol, hop, path) +
                                   levels * (protocol.tree_net + network_latency(protocol, path)));
}

void keep_least(NcclTime& best, double latency_us, double bytes, double bandwidth) {
  const double latency = latency_us * kNanosPerMicro;
  const double total = latency + bytes / bandwidth;
  if (total < best.total_ns) best = NcclTime{.total_ns = total, .latency_ns = latency};
}

}  // namespace

double wire_bytes(CollectiveKind kind, double full_bytes, double ranks) {
  const double once = full_bytes * ((ranks - 1) / ranks);
  return kind == CollectiveKind::all_reduce ? 2 * once : once;
}

NcclTime nccl_time(CollectiveKind kind, double full_bytes, const NcclPath& path) {
  const double bytes = wire_bytes(kind, full_bytes, path.ranks);
  NcclTime best{.total_ns = 1e300, .latency_ns = 0};
  keep_least(best, ring_latency(kLl, kind, path), bytes,
             std::min(ll_limit(path), path.bus * kLlShare));
  keep_least(best, ring_latency(kLl128, kind, path), bytes, path.bus * kLl128Share);
  keep_least(best, ring_latency(kSimple, kind, path), bytes, path.bus);
  if (kind != CollectiveKind::all_reduce || path.domains <= 1) return best;
  keep_least(best, tree_latency(kLl, path), bytes,
             std::min(ll_limit(path), path.bus / kTreeLlDivisor));
  keep_least(best, tree_latency(kLl128, path), bytes, path.bus * (kTreeShare * kLl128Share));
  keep_least(best, tree_latency(kSimple, path), bytes, path.bus * kTreeShare);
  return best;
}

}  // namespace mfsdp
