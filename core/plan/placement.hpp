// The placement of a tensor's elements on the mesh, axis by axis.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/plan/mesh.hpp"

namespace mfsdp {

/// The placement along one axis.
enum class PlacementKind {
  replicate,  ///< every rank has the whole tensor
  shard,      ///< sharded along one of its dims
  flat,       ///< a group's flat buffer in equal intervals, independent of its parameters' dims
  partial     ///< every rank has a term of the sum
};

constexpr auto value_names(PlacementKind) {
  return name_array("replicate", "shard", "flat", "partial");
}

struct AxisPlacement {
  Axis axis = Axis::dp_shard;
  PlacementKind kind = PlacementKind::flat;
  std::optional<std::int64_t> dim{};  ///< of kind shard

  friend bool operator==(const AxisPlacement&, const AxisPlacement&) = default;
};

/// Missing axes replicate. Flat axes shard in the order of the list: with dp_shard before dp_outer,
/// a rank has its interval along dp_shard, and of this its part along dp_outer.
using Placement = std::vector<AxisPlacement>;

/// The flat axes, in their order.
[[nodiscard]] inline std::vector<Axis> flat_axes(const Placement& placement) {
  std::vector<Axis> axes;
  for (const AxisPlacement& on : placement)
    if (on.kind == PlacementKind::flat) axes.push_back(on.axis);
  return axes;
}

/// The global shape of a tensor with that shape on one rank.
[[nodiscard]] inline std::vector<std::int64_t> whole_shape(std::vector<std::int64_t> shape,
                                                           const Placement& shard,
                                                           const Mesh& mesh) {
  for (const AxisPlacement& on : shard)
    if (on.kind == PlacementKind::shard)
      shape.at(static_cast<std::size_t>(*on.dim)) =
          checked_mul(shape.at(static_cast<std::size_t>(*on.dim)), mesh.size(on.axis));
  return shape;
}

/// The index of a rank's part among the equal parts of a tensor's first dim.
[[nodiscard]] inline std::int64_t shard_of(const Placement& shard, const Mesh& mesh,
                                           std::int64_t rank) {
  std::int64_t number = 0;
  for (const AxisPlacement& on : shard)
    if (on.kind == PlacementKind::shard)
      number = number * mesh.size(on.axis) + mesh.index(rank, on.axis);
  return number;
}

/// Elements [begin, end) of a flat buffer; empty when begin == end.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }
  [[nodiscard]] bool empty() const { return begin == end; }
  friend bool operator==(const Interval&, const Interval&) = default;
};

/// Elements of both intervals; an empty interval if there are none.
[[nodiscard]] inline Interval common_part(const Interval& a, const Interval& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {.begin = begin, .end = std::max(begin, std::min(a.end, b.end))};
}

/// The part of `elements` on a rank under a placement: all, divided equally by each flat axis in
/// turn. The sizes of the axes must divide the elements.
[[nodiscard]] inline Interval interval_of(std::int64_t elements, const Placement& placement,
                                          const Mesh& mesh, std::int64_t rank) {
  Interval held{.begin = 0, .end = elements};
  for (const AxisPlacement& on : placement) {
    if (on.kind != PlacementKind::flat) continue;
    const std::int64_t part = held.size() / mesh.size(on.axis);
    held.begin += part * mesh.index(rank, on.axis);
    held.end = held.begin + part;
  }
  return held;
}

}  // namespace mfsdp
