// The price of a collective, and what it takes from kernels that run beside it.
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

/// Ranks base, base + spacing, base + 2 spacing, ... of the world. dp_shard is contiguous
/// (spacing 1); dp_outer's ranks lie dp_shard apart. All `spacing` such communicators are taken to
/// run at the same time, as they do in a symmetric step.
struct CommunicatorShape {
  std::int64_t ranks = 1;
  std::int64_t spacing = 1;
};

/// What moves a collective's bytes inside a node, and what they are.
struct CollectiveWay {
  Transport transport = Transport::nccl;
  DType dtype = DType::bf16;
};

struct CollectiveCost {
  Nanos duration;
  Nanos latency;          ///< part of the duration in which the link is idle
  Contention contention;  ///< what it and kernels beside it lose to each other
  LinkClass link = LinkClass::node;
  std::int64_t link_share = kContentionUnit;  ///< of what several at once can move, that it wants
  Transport by = Transport::nccl;  ///< what moves it: between domains rings, whatever was asked

  friend bool operator==(const CollectiveCost&, const CollectiveCost&) = default;
};

class CollectiveModel {
 public:
  /// `rows` as parse_collective_table returns them.
  CollectiveModel(std::span<const CollectiveRow> rows, Cluster cluster);

  /// Price over the full (gathered) buffer; for all-reduce the buffer itself. Inside a domain from
  /// the table: linear in bytes between its sizes and linear in ranks between its curves. Between
  /// domains NCCL's model of the rings and trees that the cluster's routes (topology.hpp) carry,
  /// but never less than the part inside one domain takes. Communicators of a class differ where
  /// one straddles a border or has a slow NIC: the price is that of the slowest. One rank pays a
  /// device copy (nothing for all-reduce, which is in place). From window to window inside a domain
  /// the part that grows with bytes is longer or shorter by a measured ratio; beyond it NCCL knows
  /// no windows, and the price is that of its rings.
  [[nodiscard]] CollectiveCost cost(CollectiveKind kind, Bytes full_bytes,
                                    const CommunicatorShape& shape,
                                    const CollectiveWay& way = {}) const;

 private:
  struct Span;
  [[nodiscard]] Span span_of(const CommunicatorShape& shape) const;
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
