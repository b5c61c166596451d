// How a group's weights and gradients travel over the mesh, read off its placements.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp::schedule {

/// What the schedule does along a mesh axis. An axis that groups are to be cut or reduced along
/// needs a row in route.cpp, and nothing else here.
struct AxisTraffic {
  Axis axis = Axis::dp_shard;
  StreamRole gather_stream = StreamRole::all_gather;
  std::string_view gather_communicator;  ///< its purpose
  StreamRole reduce_stream = StreamRole::reduce_scatter;
  std::string_view reduce_communicator;
  bool wire = false;  ///< gradients cross in reduce_dtype, else in the main gradient's
};

/// All of them, the order being that in which gradients are reduced.
[[nodiscard]] std::span<const AxisTraffic> axis_traffic();

/// The purpose of the communicator for what a recipe sends along an axis.
[[nodiscard]] std::string activations_over(Axis axis);

struct Gather {
  const AxisTraffic* on = nullptr;
  std::int64_t ranks = 0;
};

struct Reduce {
  const AxisTraffic* on = nullptr;
  bool scatters = false;         ///< else every rank gets all of the sum
  bool each_microbatch = false;  ///< else once, after the last microbatch
};

struct Route {
  std::optional<Gather> gather;   ///< of weights, before each use
  std::vector<Reduce> reduces;    ///< of the gradient, in this order
  std::optional<Gather> refresh;  ///< of updated weights, where a rank keeps more than it updates

  /// Whether each microbatch's gradient is reduced into a shard, from a slot of its own.
  [[nodiscard]] bool shards_gradient() const {
    return !reduces.empty() && reduces.front().each_microbatch;
  }
};

/// Of a group on a mesh. Weights cut along several axes would be gathered in several steps, which
/// no schedule does: std::logic_error, as is an axis without a row.
[[nodiscard]] Route route_of(const Group& group, const Mesh& mesh);

}  // namespace mfsdp::schedule
