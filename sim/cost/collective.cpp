#include "sim/cost/collective.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/plan/transport.hpp"
#include "sim/cost/nanos.hpp"

namespace mfsdp {
namespace {

// Share of the NICs' nominal bandwidth that large messages reach. All-reduce: 381.8 of 400 GB/s at
// 16 GiB on 4 nodes of B200 (8 x 400 Gbit/s). All-gather and reduce-scatter reach 0.673 / 0.742 of
// all-reduce's share (the same fit on B200 gives both), so 0.95 * 0.907 = 0.86.
constexpr double kNetworkShareAllReduce = 0.95;
constexpr double kNetworkShareGather = 0.86;
constexpr double kChannelsPerNic = 2;  // assumed: 16 on nodes of eight NICs
constexpr BytesPerNano kUnlimited = 1e12;

double column(const CollectiveRow& row, CollectiveKind kind) {
  switch (kind) {
    case CollectiveKind::all_gather: return row.all_gather_ns;
    case CollectiveKind::reduce_scatter: return row.reduce_scatter_ns;
    case CollectiveKind::all_reduce: return row.all_reduce_ns;
    // Not measured. With a switch, each rank sends and receives as many bytes as in an
    // all-gather.
    case CollectiveKind::all_to_all: return row.all_gather_ns;
    case CollectiveKind::shift:  // as a message
    case CollectiveKind::send:
    case CollectiveKind::recv: break;  // message() has their price
  }
  return 0;
}

/// True if every communicator of a class lies inside one part (a domain, a leaf) of the cluster.
/// `block` is the number of consecutive GPUs that a communicator spans. If blocks do not divide the
/// part, one of them crosses a border, and it is the slowest of its class.
bool stays_inside(std::int64_t block, std::int64_t part, std::int64_t gpus) {
  return gpus <= part || (block <= part && part % block == 0);
}

}  // namespace

/// Placement of a communicator's ranks, which is even.
struct CollectiveModel::Span {
  double ranks = 1;
  double domains = 1;
  double leaves = 1;
  bool same_place = true;  ///< in every node the same GPUs take part

  [[nodiscard]] double ranks_per_domain() const { return ranks / domains; }
};

CollectiveModel::Span CollectiveModel::span_of(const CommunicatorShape& shape) const {
  const Cluster& cluster = cluster_;
  std::int64_t alike = shape.ranks;  // in the innermost set
  for (const RankSets& sets : shape.sets) alike /= sets.count;
  const RankSets outermost =
      shape.sets.empty() ? RankSets{.count = alike, .spacing = shape.spacing} : shape.sets.back();
  const std::int64_t block = checked_mul(outermost.count, outermost.spacing);
  Span span{.ranks = static_cast<double>(shape.ranks)};
  if (stays_inside(block, cluster.domain, cluster.gpus)) return span;
  std::int64_t inside = std::clamp<std::int64_t>(cluster.domain / shape.spacing, 1, alike);
  bool is_whole = inside == alike;  // whether the sets so far are inside a domain
  for (const RankSets& sets : shape.sets) {
    if (!is_whole) break;
    const auto count = std::clamp<std::int64_t>(cluster.domain / sets.spacing, 1, sets.count);
    inside *= count;
    is_whole = count == sets.count;
  }
  const std::int64_t domains = std::max<std::int64_t>(2, ceil_div(shape.ranks, inside));
  span.domains = static_cast<double>(domains);
  span.same_place = inside > 1 || shape.spacing % cluster.gpus_per_node == 0;
  if (!cluster.nodes_per_leaf) return span;
  const std::int64_t leaf = checked_mul(*cluster.nodes_per_leaf, cluster.gpus_per_node);
  if (!stays_inside(block, leaf, cluster.gpus))
    span.leaves = static_cast<double>(std::clamp<std::int64_t>(ceil_div(block, leaf), 2, domains));
  return span;
}

CollectiveModel::CollectiveModel(std::span<const CollectiveRow> rows, Cluster cluster)
    : cluster_(std::move(cluster)), routes_(find_routes(cluster_)) {
  for (const CollectiveRow& row : rows) {
    const bool new_curve = ranks_.empty() || ranks_.back() != row.ranks;
    if (new_curve) ranks_.push_back(row.ranks);
    if (ranks_.size() == 1) sizes_.push_back(row.bytes);
    for (const CollectiveKind kind : {CollectiveKind::all_gather, CollectiveKind::all_reduce,
                                      CollectiveKind::reduce_scatter, CollectiveKind::all_to_all}) {
      auto& curves = nanoseconds_[static_cast<std::size_t>(kind)];
      if (new_curve) curves.emplace_back();
      curves.back().push_back(column(row, kind));
    }
  }
  for (TimeGrid& times : nanoseconds_) make_monotone(times, sizes_);
}

double CollectiveModel::link_scale(double ranks) const {
  const Gpu& gpu = cluster_.gpu;
  BytesPerNano bandwidth = routes_.domain.bandwidth;
  // Without a switch a pair of GPUs has one link, so all links are busy only if all GPUs take part.
  if (gpu.per_peer_bandwidth) bandwidth = std::min(gpu.link_bandwidth, (ranks - 1) * bandwidth);
  return bandwidth * gpu.link_efficiency / kTableLink;
}

double CollectiveModel::table_time(CollectiveKind kind, std::size_t curve, double bytes) const {
  const std::vector<double>& times = nanoseconds_[static_cast<std::size_t>(kind)][curve];
  if (bytes <= sizes_.front()) return times.front();
  std::size_t upper = 1;
  while (upper + 1 < sizes_.size() && sizes_[upper] < bytes) ++upper;
  const double slope = (times[upper] - times[upper - 1]) / (sizes_[upper] - sizes_[upper - 1]);
  return times[upper - 1] + (bytes - sizes_[upper - 1]) * slope;
}

BytesPerNano CollectiveModel::bus_inside(CollectiveKind kind, double ranks) const {
  const std::vector<double>& times = nanoseconds_[static_cast<std::size_t>(kind)].back();
  const std::size_t last = sizes_.size() - 1;
  const double bytes = wire_bytes(kind, sizes_[last] - sizes_[last - 1], ranks_.back());
  return bytes / std::max(1.0, times[last] - times[last - 1]) * link_scale(ranks);
}

const Route& CollectiveModel::route_below_leaf(const Span& span) const {
  return span.same_place ? routes_.leaf : routes_.other_rail;
}

BytesPerNano CollectiveModel::bus_between(CollectiveKind kind, const Span& span) const {
  const double share =
      kind == CollectiveKind::all_reduce ? kNetworkShareAllReduce : kNetworkShareGather;
  const Route& narrowest = span.leaves > 1 ? routes_.spine : route_below_leaf(span);
  return narrowest.bandwidth * span.ranks_per_domain() * share;
}

double CollectiveModel::channels_between(double inside) const {
  const double nics = inside * static_cast<double>(cluster_.nics_per_node) /
                      static_cast<double>(cluster_.gpus_per_node);
  const double most = std::max(kChannelsPerNic, static_cast<double>(cluster_.gpu.collective_sms));
  return std::clamp(kChannelsPerNic * nics, kChannelsPerNic, most);
}

NcclTime CollectiveModel::time_inside(CollectiveKind kind, double bytes, double ranks) const {
  std::size_t upper = 0;
  while (upper + 1 < ranks_.size() && ranks_[upper] < ranks) ++upper;
  const std::size_t lower = upper == 0 ? 0 : upper - 1;
  const double span = ranks_[upper] - ranks_[lower];
  const double part = span == 0 ? 0 : std::clamp((ranks - ranks_[lower]) / span, 0.0, 1.0);
  const auto between = [&](double size) {
    const double low = table_time(kind, lower, size);
    return low + (table_time(kind, upper, size) - low) * part;
  };
  NcclTime time;
  time.latency_ns = between(0);
  time.total_ns = time.latency_ns + (between(bytes) - time.latency_ns) / link_scale(ranks);
  if (kind == CollectiveKind::all_to_all && cluster_.gpu.all_to_all)
    time.total_ns = time.latency_ns + wire_bytes(kind, bytes, ranks) / *cluster_.gpu.all_to_all;
  // The table's latency hides the first megabyte on NVLink; slower links cannot do that.
  const double known = std::min(ranks, ranks_.back());
  time.total_ns = std::max(time.total_ns, wire_bytes(kind, bytes, known) / bus_inside(kind, ranks));
  if (ranks <= ranks_.back()) return time;
  // Beyond the table (NVL72): adds the increase of NCCL's model from the last curve's ranks to
  // these.
  NcclPath path{.ranks = ranks_.back(),
                .bus = bus_inside(kind, ranks),
                .channels = static_cast<double>(cluster_.gpu.collective_sms),
                .link = cluster_.gpu.link,
                .link_scale = link_scale(ranks)};
  const NcclTime base = nccl_time(kind, bytes, path);
  path.ranks = ranks;
  const NcclTime wide = nccl_time(kind, bytes, path);
  time.total_ns += std::max(0.0, wide.total_ns - base.total_ns);
  time.latency_ns += std::max(0.0, wide.latency_ns - base.latency_ns);
  return time;
}

/// Demand of one collective, relative to the bandwidth that several concurrent ones reach.
std::int64_t CollectiveModel::share_of_link(BytesPerNano sent, Transport by) const {
  const std::optional<double>& most = prices_of(by).link;
  if (!most) return kContentionUnit;
  const double part = sent / (*most * cluster_.gpu.link_bandwidth);
  return std::llround(std::min(1.0, part) * static_cast<double>(kContentionUnit));
}

NcclTime CollectiveModel::time_between(CollectiveKind kind, double bytes, const Span& span) const {
  const double inside = span.ranks_per_domain();
  const BytesPerNano between = bus_between(kind, span);
  const BytesPerNano within = inside < 2 ? kUnlimited : bus_inside(kind, inside);
  // On two domains a tree sends the buffer over the network once in each direction, whereas a ring
  // sends (n-1)/n of it twice. On more domains a tree's inner nodes send it up and down, as much as
  // a ring.
  const double tree_gain = span.domains == 2 ? 2 * (span.ranks - 1) / span.ranks : 1;
  const NcclPath path{.ranks = span.ranks,
                      .domains = span.domains,
                      .leaves = span.leaves,
                      .bus = std::min(between, within),
                      .tree_bus = std::min(between * tree_gain, within),
                      .channels = channels_between(inside),
                      .leaf_hop_ns = static_cast<double>(route_below_leaf(span).latency.value),
                      .spine_hop_ns = static_cast<double>(routes_.spine.latency.value),
                      .simple_only = cluster_.simple_only,
                      .link = cluster_.gpu.link,
                      .link_scale = cluster_.gpu.link_bandwidth / kTableLink};
  NcclTime time = nccl_time(kind, bytes, path);
  // Nothing is forwarded: each rank sends to ranks of other domains through its own share of the
  // network. A ring enters and leaves a domain once for all of its ranks.
  if (kind == CollectiveKind::all_to_all) {
    const double leaving = bytes * (span.ranks - inside) / span.ranks;
    time.total_ns = std::max(time.total_ns, time.latency_ns + leaving / (between / inside));
  }
  if (inside >= 2)
    time.total_ns = std::max(time.total_ns, time_inside(kind, bytes, inside).total_ns);
  return time;
}

Contention CollectiveModel::beside_kernels(double bytes, double duration_ns,
                                           Transport transport) const {
  const auto rings = static_cast<double>(cluster_.gpu.collective_sms);
  return contention(cluster_.gpu, {.transport = transport,
                                   .blocks = prices_of(transport).blocks.value_or(rings),
                                   .bytes = bytes,
                                   .duration_ns = std::max(1.0, duration_ns)});
}

CollectiveCost CollectiveModel::local_copy(CollectiveKind kind, double bytes) const {
  if (kind == CollectiveKind::all_reduce || bytes == 0) return {};
  const Gpu& gpu = cluster_.gpu;
  const auto launch = static_cast<double>(gpu.launch.value);
  const double ns = launch + 2 * bytes / gpu.copy_bandwidth();
  return CollectiveCost{.duration = to_nanos(ns),
                        .latency = to_nanos(launch),
                        .contention = beside_kernels(2 * bytes, ns),
                        .link = LinkClass::node};
}

CollectiveCost CollectiveModel::cost(CollectiveKind kind, Bytes full_bytes,
                                     const CommunicatorShape& shape,
                                     const CollectiveWay& way) const {
  const auto bytes = static_cast<double>(full_bytes.value);
  if (shape.ranks <= 1) {
    CollectiveCost own = local_copy(kind, bytes);
    own.by = way.transport;
    return own;
  }
  return cost_on(kind, bytes, span_of(shape), way);
}

CollectiveCost CollectiveModel::message(Bytes bytes, const PeerPath& path,
                                        const CollectiveWay& way) const {
  const Span span{.ranks = 2,
                  .domains = path.domain ? 1.0 : 2.0,
                  .leaves = path.leaf ? 1.0 : 2.0,
                  .same_place = path.place};
  return cost_on(CollectiveKind::all_gather, 2 * static_cast<double>(bytes.value), span, way);
}

CollectiveCost CollectiveModel::cost_on(CollectiveKind kind, double bytes, const Span& span,
                                        const CollectiveWay& way) const {
  const bool local = span.domains <= 1;
  const Transport by = local ? way.transport : Transport::nccl;
  NcclTime time = local ? time_inside(kind, bytes, span.ranks) : time_between(kind, bytes, span);
  if (traits_of(by).uses_windows)
    time.total_ns = time.latency_ns + (time.total_ns - time.latency_ns) *
                                          ratio_to_rings(by, kind, way.dtype, span.ranks);
  // Every byte is read from memory once by the sender and written once by the receiver.
  const double moved = 2 * wire_bytes(kind, bytes, span.ranks);
  const double moving_ns = std::max(1.0, time.total_ns - time.latency_ns);
  return {.duration = to_nanos(time.total_ns),
          .latency = to_nanos(std::min(time.latency_ns, time.total_ns)),
          .contention = beside_kernels(moved, time.total_ns, by),
          .link = local ? LinkClass::node : LinkClass::network,
          .link_share = local ? share_of_link(moved / 2 / moving_ns, by) : kContentionUnit,
          .by = by};
}

}  // namespace mfsdp
