// The collectives of a group's weights and gradients on the mesh, by its placements.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp::schedule {

/// The collectives of the schedule along a mesh axis, or along some that shard alike. To shard or
/// reduce along another axis, add a row in route.cpp.
struct AxisTraffic {
  Axis axis = Axis::dp_shard;
  std::vector<Axis> inner = {};  ///< sharded with it, further in: one communicator spans all
  StreamRole gather_stream = StreamRole::all_gather;
  std::string_view gather_communicator;  ///< the purpose of the communicator
  StreamRole reduce_stream = StreamRole::reduce_scatter;
  std::string_view reduce_communicator;
  bool wire = false;      ///< reductions in reduce_dtype, else in the main gradient's dtype
  bool of_whole = false;  ///< of parameters that are whole on each of several ranks of tp

  /// Those of its axes that have several ranks, outermost first; none of a row for parameters that
  /// are whole on ranks of tp where there are no such ranks.
  [[nodiscard]] std::vector<Axis> axes(const Mesh& mesh) const;
  /// Whether it has the collectives of that group.
  [[nodiscard]] bool serves(const Group& group, const Mesh& mesh) const;
};

/// All axes, in the order in which gradients are reduced.
[[nodiscard]] std::span<const AxisTraffic> axis_traffic();

/// The purpose of the communicator for a recipe's collectives along an axis.
[[nodiscard]] std::string activations_over(Axis axis);

struct Gather {
  const AxisTraffic* on = nullptr;
  std::vector<Axis> axes = {};  ///< with several ranks, outermost first
  std::int64_t ranks = 0;
};

struct Reduce {
  const AxisTraffic* on = nullptr;
  std::vector<Axis> axes = {};   ///< with several ranks, outermost first
  bool scatters = false;         ///< reduce-scatter, else all-reduce
  bool each_microbatch = false;  ///< else once, after the last microbatch
};

struct Route {
  std::optional<Gather> gather;      ///< of weights, before each use
  std::vector<Reduce> reduces = {};  ///< of the gradient, in this order
  std::optional<Gather> refresh;  ///< of updated weights, where a rank keeps more than it updates

  /// Whether each microbatch's gradient is reduced from a slot into a shard.
  [[nodiscard]] bool shards_gradient() const {
    return !reduces.empty() && reduces.front().each_microbatch;
  }
};

/// The route of a group on a mesh. Weights that are gathered along axes of several rows, and axes
/// without a row, are not supported: std::logic_error.
[[nodiscard]] Route route_of(const Group& group, const Mesh& mesh);

}  // namespace mfsdp::schedule
