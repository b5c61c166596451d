#include "sim/cost/nccl.hpp"

#include <algorithm>
#include <array>

#include "sim/cost/nanos.hpp"

namespace mfsdp {
namespace {

// Trees reach less than the model's bandwidth at middle sizes: NCCL's correction by buffer size,
// from 64 bytes to 512 MiB in powers of two.
using SizeCorrection = std::array<double, 24>;
constexpr double kFirstCorrectedBytes = 64;

/// Constants of one protocol, microseconds as in NCCL's tables.
struct Protocol {
  double ring_base = 0;
  double tree_base = 0;
  double ring_nvlink = 0;
  double ring_pcie = 0;
  double ring_net = 0;
  double tree_nvlink = 0;
  double tree_pcie = 0;
  double tree_net = 0;
  bool simple = false;
  SizeCorrection tree_correction{};
};

constexpr Protocol kLl{.ring_base = 6.6,
                       .tree_base = 6.8,
                       .ring_nvlink = 0.6,
                       .ring_pcie = 1.0,
                       .ring_net = 2.7,
                       .tree_nvlink = 0.6,
                       .tree_pcie = 1.0,
                       .tree_net = 5.0,
                       .simple = false,
                       .tree_correction = {1,  1,  1,  1,  .9, .8, .7, .7, .7, .7, .6, .5,
                                           .4, .4, .5, .6, .7, .8, .9, 1,  1,  1,  1,  1}};
constexpr Protocol kLl128{.ring_base = 14,
                          .tree_base = 14,
                          .ring_nvlink = 1.9,
                          .ring_pcie = 2.5,
                          .ring_net = 4.0,
                          .tree_nvlink = 1.25,
                          .tree_pcie = 1.9,
                          .tree_net = 8.5,
                          .simple = false,
                          .tree_correction = {1,  1,  1,  1,  1,  .9, .8, .8, .8, .7, .6, .6,
                                              .6, .6, .6, .6, .8, .9, .9, .9, .9, 1,  1,  1}};
constexpr Protocol kSimple{.ring_base = 8.4,
                           .tree_base = 8.4,
                           .ring_nvlink = 3.4,
                           .ring_pcie = 5.7,
                           .ring_net = 14,
                           .tree_nvlink = 4.0,
                           .tree_pcie = 4.0,
                           .tree_net = 14,
                           .simple = true,
                           .tree_correction = {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
                                               .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, 1}};
constexpr double kAllReduceSimpleFactor = 1.4;  // factor on the latency between domains
constexpr double kTreeShare = 0.92;             // share of the bus that a tree reaches
constexpr double kRingLl128Share = 0.92;        // 120 of 128 bytes carry data, with some overhead
constexpr double kTreeLl128Share = 120.0 / 128;
constexpr double kRingLlShare = 0.5;  // 4 of 8 bytes carry data
constexpr double kTreeLlDivisor = 3.8;
constexpr double kPatBase = 8;
constexpr double kPatShare = 0.75;
constexpr double kPatStepDivisor = 3.5;  // divides the latency of a step
constexpr double kPatPerRank = 2.8;

/// Maximum GB/s of one channel: NCCL's values for a generation of GPUs.
struct ChannelLimits {
  double ring_ll128 = 0;
  std::array<double, 2> tree{};  ///< on two domains, on more
  std::array<double, 2> tree_ll128{};
};

constexpr ChannelLimits kAmpere{.ring_ll128 = 20, .tree = {23.6, 17.8}, .tree_ll128 = {20, 20}};
constexpr ChannelLimits kHopper{
    .ring_ll128 = 36.7, .tree = {41.4, 36.0}, .tree_ll128 = {36.7, 29.0}};
constexpr ChannelLimits kBlackwell{
    .ring_ll128 = 73.4, .tree = {42.8, 24.0}, .tree_ll128 = {31.67, 20.0}};

/// Selects the generation by link bandwidth, which about doubles each time: 300, 450, 900 GB/s.
const ChannelLimits& limits_of(const NcclPath& path) {
  if (path.link_scale < 0.8) return kAmpere;
  return path.link_scale < 1.4 ? kHopper : kBlackwell;
}

/// LL's own limit: inside a domain NCCL's Hopper value; with a network, that of its hosts (Intel).
double ll_limit(const NcclPath& path) {
  if (path.domains <= 1) return 141 * path.link_scale;
  return path.domains <= 2 ? 39 : 20.4;
}

/// A hop inside a domain. With a network, every step also waits for its proxy's overhead.
double inside_hop(const Protocol& protocol, double hop, const NcclPath& path) {
  if (path.domains <= 1) return hop;
  const double overhead = (path.link == LinkKind::xgmi ? 2.0 : 1.0) * (protocol.simple ? 3.0 : 1.0);
  return std::max(hop, overhead);
}

/// `hops` on the network, `far` of them through the spine. Simple flushes after each hop.
double network_latency(const Protocol& protocol, double hop, double hops, double far,
                       const NcclPath& path) {
  const double ways = (hops - far) * path.leaf_hop_ns + far * path.spine_hop_ns;
  return hops * hop + ways / kNanosPerMicro * (protocol.simple ? 2.0 : 1.0);
}

double levels(double count) {
  double depth = 0;
  for (double reach = 1; reach < count; reach *= 2) ++depth;
  return depth;
}

double ring_latency(const Protocol& protocol, CollectiveKind kind, const NcclPath& path) {
  const bool all_reduce = kind == CollectiveKind::all_reduce;
  const double rounds = all_reduce ? 2 : 1;
  const double between = rounds * (path.domains - 1);
  const double inside = rounds * (path.ranks - 1) - between;
  const double hop = path.link == LinkKind::pcie ? protocol.ring_pcie : protocol.ring_nvlink;
  // With one rank in each domain, no hop inside hides a part of those between.
  const double net = path.ranks == path.domains ? protocol.tree_net : protocol.ring_net;
  const double latency = protocol.ring_base + inside * inside_hop(protocol, hop, path) +
                         network_latency(protocol, net, between, rounds * (path.leaves - 1), path);
  const bool slow = all_reduce && protocol.simple && path.domains > 1;
  return latency * (slow ? kAllReduceSimpleFactor : 1.0);
}

double tree_latency(const Protocol& protocol, const NcclPath& path) {
  const double inside = std::max(0.0, path.ranks / path.domains - 1);
  const double hop = path.link == LinkKind::pcie ? protocol.tree_pcie : protocol.tree_nvlink;
  return protocol.tree_base +
         2 * (inside * inside_hop(protocol, hop, path) +
              network_latency(protocol, protocol.tree_net, levels(path.domains),
                              levels(path.leaves), path));
}

double pat_latency(const NcclPath& path) {
  return kPatBase + kPatPerRank * path.ranks +
         network_latency(kSimple, kSimple.tree_net, levels(path.domains), levels(path.leaves),
                         path) /
             kPatStepDivisor;
}

/// Corrected cost of `bytes`, in bytes: linear between the sizes of the correction, so that larger
/// messages never cost less.
double corrected(double bytes, const SizeCorrection& correction) {
  double size = kFirstCorrectedBytes;
  if (bytes <= size) return bytes / correction.front();
  for (std::size_t i = 1; i < correction.size(); ++i, size *= 2) {
    if (bytes > 2 * size) continue;
    const double low = size / correction[i - 1];
    const double high = 2 * size / correction[i];
    return low + (high - low) * ((bytes - size) / size);
  }
  return bytes / correction.back();
}

void keep_least(NcclTime& best, double latency_us, double bytes, double bandwidth) {
  const double latency = latency_us * kNanosPerMicro;
  const double total = latency + bytes / bandwidth;
  if (total < best.total_ns) best = NcclTime{.total_ns = total, .latency_ns = latency};
}

void try_rings(NcclTime& best, CollectiveKind kind, double bytes, const NcclPath& path) {
  keep_least(best, ring_latency(kSimple, kind, path), bytes, path.bus);
  if (path.simple_only) return;
  keep_least(best, ring_latency(kLl, kind, path), bytes,
             std::min(ll_limit(path), path.bus * kRingLlShare));
  keep_least(best, ring_latency(kLl128, kind, path), bytes,
             std::min(path.bus * kRingLl128Share, path.channels * limits_of(path).ring_ll128));
}

void try_trees(NcclTime& best, double full_bytes, double bytes, const NcclPath& path) {
  const std::size_t many = path.domains <= 2 ? 0 : 1;
  const ChannelLimits& limits = limits_of(path);
  const double bus = std::min(path.tree_bus * kTreeShare, path.channels * limits.tree[many]);
  const auto consider = [&](const Protocol& protocol, double bandwidth) {
    const double sag =
        full_bytes == 0 ? 1 : corrected(full_bytes, protocol.tree_correction) / full_bytes;
    keep_least(best, tree_latency(protocol, path), bytes * sag, bandwidth);
  };
  consider(kSimple, bus);
  if (path.simple_only) return;
  consider(kLl, std::min(ll_limit(path), bus / kTreeLlDivisor));
  consider(kLl128, std::min(bus * kTreeLl128Share, path.channels * limits.tree_ll128[many]));
}

}  // namespace

double wire_bytes(CollectiveKind kind, double full_bytes, double ranks) {
  const double once = full_bytes * ((ranks - 1) / ranks);
  return kind == CollectiveKind::all_reduce ? 2 * once : once;
}

NcclTime nccl_time(CollectiveKind kind, double full_bytes, const NcclPath& path) {
  const double bytes = wire_bytes(kind, full_bytes, path.ranks);
  NcclTime best{.total_ns = 1e300, .latency_ns = 0};
  try_rings(best, kind, bytes, path);
  if (path.domains <= 1) return best;
  if (kind == CollectiveKind::all_reduce)
    try_trees(best, full_bytes, bytes, path);
  else if (path.ranks == path.domains)
    keep_least(best, pat_latency(path), bytes, path.bus * kPatShare);
  return best;
}

}  // namespace mfsdp
