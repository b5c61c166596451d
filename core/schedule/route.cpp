#include "core/schedule/route.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace mfsdp::schedule {
namespace {

constexpr std::array kTraffic{
    AxisTraffic{.axis = Axis::dp_shard,
                .gather_stream = StreamRole::all_gather,
                .gather_communicator = "all_gather",
                .reduce_stream = StreamRole::reduce_scatter,
                .reduce_communicator = "reduce_scatter",
                .wire = true},
    AxisTraffic{.axis = Axis::dp_outer,
                .gather_stream = StreamRole::outer,
                .gather_communicator = "outer",
                .reduce_stream = StreamRole::outer,
                .reduce_communicator = "outer"},
    AxisTraffic{.axis = Axis::expt_dp,
                .gather_stream = StreamRole::all_gather,
                .gather_communicator = "expert_all_gather",
                .reduce_stream = StreamRole::reduce_scatter,
                .reduce_communicator = "expert_reduce_scatter",
                .wire = true},
    AxisTraffic{.axis = Axis::expt_dp_outer,
                .gather_stream = StreamRole::outer,
                .gather_communicator = "expert_outer",
                .reduce_stream = StreamRole::outer,
                .reduce_communicator = "expert_outer"},
};

bool is_flat(const Placement& placement, Axis axis) {
  return std::ranges::any_of(placement, [&](const AxisPlacement& on) {
    return on.axis == axis && on.kind == PlacementKind::flat;
  });
}

/// The axis along which `cut` is sharded and `whole` is not.
std::optional<Gather> gather_between(const Placement& cut, const Placement& whole,
                                     const Mesh& mesh) {
  std::optional<Gather> gather;
  for (const AxisTraffic& on : kTraffic) {
    if (!is_flat(cut, on.axis) || is_flat(whole, on.axis)) continue;
    if (gather) throw std::logic_error("no schedule gathers over several axes");
    gather = {.on = &on, .ranks = mesh.size(on.axis)};
  }
  return gather;
}

}  // namespace

std::span<const AxisTraffic> axis_traffic() { return kTraffic; }

std::string activations_over(Axis axis) { return "activations." + std::string(to_string(axis)); }

Route route_of(const Group& group, const Mesh& mesh) {
  Route route{.gather = gather_between(group.weight, {}, mesh),
              .refresh = gather_between(group.state, group.weight, mesh)};
  for (const AxisTraffic& on : kTraffic) {
    if (mesh.size(on.axis) == 1 || std::ranges::find(group.reduce, on.axis) == group.reduce.end())
      continue;
    route.reduces.push_back({.on = &on,
                             .scatters = is_flat(group.state, on.axis),
                             .each_microbatch = is_flat(group.gradient, on.axis)});
  }
  return route;
}

}  // namespace mfsdp::schedule
