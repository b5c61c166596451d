// A model's parameter groups under a configuration, and the bytes that each rank keeps of them.
#pragma once

#include <vector>

#include "core/model/model.hpp"
#include "core/plan/config.hpp"
#include "core/plan/plan.hpp"
#include "core/shard/flat_layout.hpp"

namespace mfsdp {

/// What the strategies cut along which axes, the layout wherever any strategy would.
struct Cuts {
  std::vector<Axis> layout;
  Placement weight;
  Placement gradient;
  Placement state;
};

[[nodiscard]] Cuts cuts_of(const PlanConfig& config);
/// The same of experts that are dealt out: the strategies' presets over their own grid.
[[nodiscard]] Cuts expert_cuts_of(const PlanConfig& config);

/// Whether a parameter is dealt out over ep, cut along its first dim, which has all experts.
[[nodiscard]] bool is_dealt_out(ParameterRole role, const PlanConfig& config);

/// Groups of all units in unit order; trainable before frozen within a unit, with Muon matrices of
/// blocks before what AdamW takes, and experts that are dealt out behind all else of their kind.
/// The flat layout is cut along dp_shard, that of such experts along expt_dp, and under HFSDP along
/// dp_outer too. What each kind of state is cut along is the strategy's and the outer strategy's
/// preset.
[[nodiscard]] std::vector<Group> make_groups(const Model& model, const PlanConfig& config);

/// The dtype that weight gradients are written in: on the wire's where each microbatch's is reduced
/// at once, else the main gradient's.
[[nodiscard]] DType weight_gradient_dtype(const PlanConfig& config);

/// The layout a group was made with.
[[nodiscard]] FlatLayout layout_of(const Group& group, const Mesh& mesh);

/// Ranks among which flat buffers are laid out: the product of the axes that they are cut along.
[[nodiscard]] std::int64_t layout_ranks(const PlanConfig& config);

/// What of a group a rank updates, and so has main weights and optimizer states of. Of the
/// gradient's buffer only this part ends up summed over all ranks.
[[nodiscard]] inline Interval updated_interval(const Group& group, const Mesh& mesh,
                                               std::int64_t rank) {
  return interval_of(group.elements, group.state, mesh, rank);
}

/// A parameter with the shape that it has on all ranks together.
[[nodiscard]] PlacedParameter whole_parameter(PlacedParameter parameter, const Group& group,
                                              const Mesh& mesh);

/// Whether no lower rank updates the same elements: those of all such ranks are the whole group,
/// each element once.
[[nodiscard]] bool is_first_replica(const Group& group, const Mesh& mesh, std::int64_t rank);

/// Elements that one rank keeps of each kind of state for the whole run; 0 where it has no such
/// buffer. With B the padded group, I = dp_shard, O = dp_outer:
///   model_weight     B/I under optim_grads_params, else B
///   main_weight      B/I from optim on (B/(I O) under HFSDP), else B; none where the main dtype is
///                    the compute dtype, and none for frozen groups
///   main_grad        B/I from optim_grads on, else B
///   states           of each that the optimizer keeps as many values as main_weight has, or would
///                    have; one for each kStateBlock elements of scales
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

/// The same in bytes, summed over groups, in the order of Category (model_weight first).
struct ResidentBytes {
  Bytes model_weight;
  Bytes main_weight;
  Bytes main_grad;
  Bytes optimizer_state;
};

[[nodiscard]] ResidentBytes resident_bytes(const std::vector<Group>& groups,
                                           const PlanConfig& config);

}  // namespace mfsdp
