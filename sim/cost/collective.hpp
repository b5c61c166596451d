// The price of a collective, and the time that it costs concurrent kernels.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/quantity.hpp"
#include "core/plan/op.hpp"
#include "sim/cost/contention.hpp"
#include "sim/cost/monotone.hpp"
#include "sim/cost/nccl.hpp"
#include "sim/cost/tables.hpp"
#include "sim/cost/transport_prices.hpp"
#include "sim/hardware/cluster.hpp"
#include "sim/hardware/topology.hpp"

namespace mfsdp {

/// Equal sets of ranks, `spacing` ranks of the world from one to the next.
struct RankSets {
  std::int64_t count = 1;
  std::int64_t spacing = 1;
};

/// Ranks base, base + spacing, base + 2 spacing, ... of the world. dp_shard is contiguous (spacing
/// 1); ranks along dp_outer are dp_shard apart. All `spacing` communicators are assumed to run at
/// once, as in a symmetric step. A communicator of dp_shard and pp that leaves out dp_outer has such
/// ranks in `sets`, one for each index on pp.
struct CommunicatorShape {
  std::int64_t ranks = 1;
  std::int64_t spacing = 1;
  std::vector<RankSets> sets{};  ///< the innermost first; `ranks` counts all
};

/// The parts of the cluster that two ranks share, one of which sends to the other. For several
/// pairs: those that both ranks of each pair share.
struct PeerPath {
  bool domain = true;  ///< links inside a node
  bool leaf = true;    ///< the leaf switch
  bool place = true;   ///< the place in their nodes
};

/// Transport and dtype of a collective inside a node.
struct CollectiveWay {
  Transport transport = Transport::nccl;
  DType dtype = DType::bf16;
};

struct CollectiveCost {
  Nanos duration;
  Nanos latency;          ///< part of the duration in which the link is idle
  Contention contention;  ///< what it and kernels beside it lose to each other
  LinkClass link = LinkClass::node;
  std::int64_t link_share = kContentionUnit;  ///< demand, of what several at once move
  Transport by = Transport::nccl;             ///< transport used; between domains always rings

  friend bool operator==(const CollectiveCost&, const CollectiveCost&) = default;
};

class CollectiveModel {
 public:
  /// `rows` as parse_collective_table returns them.
  CollectiveModel(std::span<const CollectiveRow> rows, Cluster cluster);

  /// Price for the full (gathered) buffer; for all-reduce, the buffer itself. Inside a domain it
  /// comes from the table: linear in bytes between its sizes and linear in ranks between its
  /// curves. Between domains it is NCCL's model of rings and trees on the cluster's routes
  /// (topology.hpp), but never less than the part inside one domain. Communicators of a class may
  /// differ, as one may cross a border or have a slow NIC: the price is that of the slowest. One
  /// rank costs a device copy (nothing for all-reduce, which is in place). With registered memory
  /// inside a domain, the part that grows with bytes is scaled by a measured ratio; between domains
  /// NCCL does not use registered memory, and the price is that of its rings.
  [[nodiscard]] CollectiveCost cost(CollectiveKind kind, Bytes full_bytes,
                                    const CommunicatorShape& shape,
                                    const CollectiveWay& way = {}) const;

  /// Price of a send and its recv: that of an all-gather of two ranks, which moves as many bytes
  /// in each direction.
  [[nodiscard]] CollectiveCost message(Bytes bytes, const PeerPath& path,
                                       const CollectiveWay& way = {}) const;

 private:
  struct Span;
  [[nodiscard]] Span span_of(const CommunicatorShape& shape) const;
  [[nodiscard]] CollectiveCost cost_on(CollectiveKind kind, double bytes, const Span& span,
                                       const CollectiveWay& way) const;
  [[nodiscard]] const Route& route_below_leaf(const Span& span) const;
  [[nodiscard]] double link_scale(double ranks) const;
  [[nodiscard]] BytesPerNano bus_inside(CollectiveKind kind, double ranks) const;
  [[nodiscard]] BytesPerNano bus_between(CollectiveKind kind, const Span& span) const;
  [[nodiscard]] double table_time(CollectiveKind kind, std::size_t curve, double bytes) const;
  [[nodiscard]] double channels_between(double ranks_per_domain) const;
  [[nodiscard]] NcclTime time_inside(CollectiveKind kind, double bytes, double ranks) const;
  [[nodiscard]] NcclTime time_between(CollectiveKind kind, double bytes, const Span& span) const;
  [[nodiscard]] std::int64_t share_of_link(BytesPerNano sent, Transport by) const;
  [[nodiscard]] CollectiveCost local_copy(CollectiveKind kind, double bytes) const;
  [[nodiscard]] Contention beside_kernels(double bytes, double duration_ns,
                                          Transport transport = Transport::nccl) const;

  Cluster cluster_;
  Routes routes_;
  std::vector<double> ranks_;            ///< of each curve, ascending
  std::vector<double> sizes_;            ///< bytes, ascending
  std::array<TimeGrid, 4> nanoseconds_;  ///< of each kind
};

}  // namespace mfsdp
