#include "core/schedule/route.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <utility>

#include "core/plan/work.hpp"

namespace mfsdp::schedule {
namespace {

const std::array kTraffic{
    AxisTraffic{.axis = Axis::dp_shard,
                .inner = {Axis::cp},
                .gather_stream = StreamRole::all_gather,
                .gather_communicator = "all_gather",
                .reduce_stream = StreamRole::reduce_scatter,
                .reduce_communicator = "reduce_scatter",
                .wire = true},
    AxisTraffic{.axis = Axis::dp_shard,
                .inner = {Axis::cp, Axis::tp},
                .gather_stream = StreamRole::all_gather,
                .gather_communicator = "whole_all_gather",
                .reduce_stream = StreamRole::reduce_scatter,
                .reduce_communicator = "whole_reduce_scatter",
                .wire = true,
                .of_whole = true},
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

/// Sharded along all of these axes.
bool is_flat(const Placement& placement, const std::vector<Axis>& axes) {
  const std::vector<Axis> flat = flat_axes(placement);
  return std::ranges::all_of(
      axes, [&](Axis axis) { return std::ranges::find(flat, axis) != flat.end(); });
}

/// The axes along which `cut` is sharded and `whole` is not.
std::optional<Gather> gather_between(const Group& group, const Placement& cut,
                                     const Placement& whole, const Mesh& mesh) {
  std::optional<Gather> gather;
  for (const AxisTraffic& on : kTraffic) {
    std::vector<Axis> axes = on.axes(mesh);
    if (axes.empty() || !on.serves(group, mesh) || !is_flat(cut, axes) || is_flat(whole, axes))
      continue;
    if (gather) throw std::logic_error("no schedule gathers over the axes of several rows");
    const std::int64_t ranks = ranks_on(axes, mesh);
    gather = {.on = &on, .axes = std::move(axes), .ranks = ranks};
  }
  return gather;
}

}  // namespace

std::vector<Axis> AxisTraffic::axes(const Mesh& mesh) const {
  std::vector<Axis> several;
  if (of_whole && mesh.size(Axis::tp) == 1) return several;
  if (mesh.size(axis) > 1) several.push_back(axis);
  for (const Axis further : inner)
    if (mesh.size(further) > 1) several.push_back(further);
  return several;
}

bool AxisTraffic::serves(const Group& group, const Mesh& mesh) const {
  const bool is_whole = mesh.size(Axis::tp) > 1 && group.shard.empty();
  return axis != Axis::dp_shard || is_whole == of_whole;
}

std::span<const AxisTraffic> axis_traffic() { return kTraffic; }

std::string activations_over(Axis axis) { return "activations." + std::string(to_string(axis)); }

Route route_of(const Group& group, const Mesh& mesh) {
  Route route{.gather = gather_between(group, group.weight, {}, mesh),
              .refresh = gather_between(group, group.state, group.weight, mesh)};
  for (const AxisTraffic& on : kTraffic) {
    std::vector<Axis> axes = on.axes(mesh);
    const auto is_summed = [&](Axis axis) {
      return std::ranges::find(group.reduce, axis) != group.reduce.end();
    };
    if (axes.empty() || !on.serves(group, mesh) || !std::ranges::all_of(axes, is_summed)) continue;
    const bool scatters = is_flat(group.state, axes);
    const bool each_microbatch = is_flat(group.gradient, axes);
    route.reduces.push_back({.on = &on,
                             .axes = std::move(axes),
                             .scatters = scatters,
                             .each_microbatch = each_microbatch});
  }
  return route;
}

}  // namespace mfsdp::schedule
