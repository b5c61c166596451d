// A model's parameter groups under a configuration, and the sizes that each rank keeps of them.
#pragma once

#include <vector>

#include "core/model/model.hpp"
#include "core/plan/config.hpp"
#include "core/plan/plan.hpp"
#include "core/shard/flat_layout.hpp"

namespace mfsdp {

/// Axes along which weights, gradients and states are sharded. The layout is sharded along all axes
/// that any strategy would use.
struct Cuts {
  std::vector<Axis> layout;
  Placement weight;
  Placement gradient;
  Placement state;
};

[[nodiscard]] Cuts cuts_of(const PlanConfig& config);
/// As cuts_of(), for expert-parallel parameters: the strategies' presets over the experts' grid.
[[nodiscard]] Cuts expert_cuts_of(const PlanConfig& config);

/// Whether a parameter is expert-parallel: sharded over ep along its first dim, which has all
/// experts.
[[nodiscard]] bool is_expert_parallel(ParameterRole role, const PlanConfig& config);

/// Groups of all units in unit order. Within a unit trainable groups come before frozen ones, with
/// Muon matrices of blocks before AdamW's, and expert-parallel groups after the others of their
/// kind. With fp8_gather each matrix that FP8 GEMMs read is a group after the others; its weights are
/// sharded as its states. The flat layout is sharded along dp_shard and cp (expert-parallel groups: expt_dp), under
/// HFSDP along dp_outer too. The strategy and the outer strategy decide the axes of each kind of state.
[[nodiscard]] std::vector<Group> make_groups(const Model& model, const PlanConfig& config);

/// The dtype of weight gradients: the reduction dtype where every microbatch is reduced, else the
/// dtype of the main gradient.
[[nodiscard]] DType weight_gradient_dtype(const PlanConfig& config);

/// The layout a group was made with.
[[nodiscard]] FlatLayout layout_of(const Group& group, const Mesh& mesh);

/// The number of shards of a flat buffer: the ranks on all axes of its layout.
[[nodiscard]] std::int64_t layout_ranks(const PlanConfig& config);

/// The part of a group that a rank updates and has main weights and optimizer states for. Only this
/// part of the gradient's buffer is summed over all ranks.
[[nodiscard]] inline Interval updated_interval(const Group& group, const Mesh& mesh,
                                               std::int64_t rank) {
  return interval_of(group.elements, group.state, mesh, rank);
}

/// A parameter with its global shape, over all ranks.
[[nodiscard]] PlacedParameter whole_parameter(PlacedParameter parameter, const Group& group,
                                              const Mesh& mesh);

/// Whether no lower rank updates the same elements. All such ranks together update each element of
/// the group once.
[[nodiscard]] bool is_first_replica(const Group& group, const Mesh& mesh, std::int64_t rank);

/// Elements of each kind of state that one rank keeps for the whole run; 0 where it has no such
/// buffer. With B the padded group, I = dp_shard * cp, O = dp_outer:
///   model_weight     B/I under optim_grads_params, else B
///   main_weight      B/I from optim on (B/(I O) under HFSDP), else B; none where the main dtype is
///                    the compute dtype, and none for frozen groups
///   main_grad        B/I from optim_grads on, else B
///   states           of the optimizer: each as many values as main_weight has, or would have;
///                    scales have one value for each kStateBlock elements
struct ResidentElements {
  std::int64_t model_weight = 0;
  std::int64_t main_weight = 0;
  std::int64_t main_grad = 0;
  struct State {
    KeptState state;
    std::int64_t values = 0;
  };
  std::vector<State> states{};
};

[[nodiscard]] ResidentElements resident_elements(const Group& group, const PlanConfig& config);

}  // namespace mfsdp
