// The persistent buffers of a program, and the places of parameters and gradients in them.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/model.hpp"
#include "core/recipe/recipe.hpp"
#include "core/schedule/emitter.hpp"
#include "core/schedule/route.hpp"
#include "core/schedule/stage.hpp"

namespace mfsdp::schedule {

/// A matrix of a checkpoint in a group's flat layout; a fused parameter has several.
struct GroupMatrix {
  std::string name;         ///< "q_proj"
  std::int64_t offset = 0;  ///< elements
  std::int64_t rows = 0;
  std::int64_t cols = 0;

  friend bool operator==(const GroupMatrix&, const GroupMatrix&) = default;
};

struct GroupState {
  const Group* group = nullptr;
  Route route;
  BufferId model_weight;
  std::optional<BufferId> scale_means;  ///< fp32 [parameters], of quantised groups
  std::optional<BufferId> main_weight;
  std::optional<BufferId> main_grad;
  std::vector<BufferId> optimizer_states;  ///< in the order of PlanConfig::kept_states
  std::vector<GroupMatrix> matrices;       ///< to orthogonalise, if any
  std::size_t norm_index = 0;              ///< among trainable groups
  std::int64_t full_offset = 0;            ///< bytes, in its unit's gathered weights or casts
  /// Of groups in FP8: casts of the rank's shard, or all of them if no use gathers them.
  std::optional<BufferId> casts{};
  std::size_t fp8_index = 0;   ///< of its amax and scale, among groups in FP8
  bool gathers_casts = false;  ///< before each use

  /// Whether its weights are in a transient buffer of their unit while they are used.
  [[nodiscard]] bool passes_through() const {
    return (route.gather && !group->fp8) || group->quantised;
  }
  /// Whether a use gathers it: weights or casts.
  [[nodiscard]] bool is_gathered_for_use() const {
    return gathers_casts || (route.gather && !group->fp8);
  }
};

struct UnitState {
  UnitId id;
  std::string name;
  std::vector<std::size_t> groups;     ///< indices into State::groups
  std::vector<std::size_t> trainable;  ///< groups with gradients, as indices too
  std::int64_t weight_bytes = 0;       ///< of all gathered groups, each aligned
  std::int64_t cast_bytes = 0;         ///< likewise, of casts that each use gathers
};

/// The end of a unit's name in the names of a group's buffers and ops: of a matrix whose casts are
/// gathered its role; else for expert-parallel parameters or, where the mesh has ranks of tp, for
/// those that are cut at their inputs and for whole ones.
[[nodiscard]] std::string suffix_of(const Group& group, const Mesh& mesh);

/// Buffers by name for recipes, and the persistent state of all groups of the stage.
class State {
 public:
  State(Emitter& emitter, const Model& model, PipelineStage stage = {});

  PipelineStage stage;
  std::vector<GroupState> groups;  ///< of the stage's units
  std::vector<UnitState> units;
  std::size_t trainable_groups = 0;  ///< of all stages

  /// int32 [token_rows, T] of this microbatch. Persistent, but on stages: there several microbatches
  /// are in flight.
  BufferId tokens;
  BufferId staged_tokens;  ///< the staging buffer of copies from the host
  BufferId pinned_tokens;
  BufferId step_block;  ///< 64 bytes: learning rate, bias corrections, step, seed
  BufferId pinned_step_block;
  BufferId loss_sums;       ///< statistic dtype [2]
  BufferId gathered_sums;   ///< statistic dtype [ranks that read other tokens, 2]
  DType norm_dtype{};       ///< of sums of squares: fp32, or int64 with exact sums
  BufferId norm_partials;   ///< norm_dtype [trainable groups]
  BufferId norm_workspace;  ///< of the one stream that computes them
  BufferId gathered_norms;  ///< norm_dtype [world, trainable groups]
  BufferId report;          ///< fp32 [8]: loss, tokens, 1/T, norm, clip factor, non-finite flag
  BufferId pinned_report;   ///< of the last stage
  BufferId loss_scale;      ///< fp32 [4], if the loss is scaled
  std::optional<BufferId> amax_history;  ///< of delayed scaling (core/plan/fp8.hpp)
  std::size_t fp8_groups = 0;
  BufferId weight_amax;    ///< fp32 [fp8_groups]: largest magnitudes, of the rank's shards at first
  BufferId weight_scales;  ///< fp32 [fp8_groups, 4], of casts: the first of each row

  /// Whether the stage's kernels read ids, labels or positions.
  [[nodiscard]] bool reads_tokens() const {
    return stage.is_first() || stage.is_last() || config_.document_mask;
  }
  /// The persistent buffer with that name in recipes.
  [[nodiscard]] BufferId global(const std::string& name) const;

  /// A parameter of a unit: its group and element offset.
  struct Place {
    const GroupState* group;
    const PlacedParameter* parameter;
  };
  [[nodiscard]] Place find(std::size_t unit, ParameterRole role) const;

  /// Whether a use of a unit gathers any of its weights, or makes them from ones of fewer bits.
  [[nodiscard]] bool gathers(std::size_t unit) const {
    return std::ranges::any_of(units[unit].groups, [&](std::size_t g) {
      return groups[g].passes_through() || groups[g].gathers_casts;
    });
  }
  /// Whether a step ends with gathers of updated weights.
  [[nodiscard]] bool refreshes(std::size_t unit) const {
    return std::ranges::any_of(units[unit].trainable,
                               [&](std::size_t g) { return groups[g].route.refresh.has_value(); });
  }
  /// Whether some of a unit's gradients are reduced into shards in every microbatch.
  [[nodiscard]] bool shards_gradient(std::size_t unit) const {
    return std::ranges::any_of(units[unit].trainable,
                               [&](std::size_t g) { return groups[g].route.shards_gradient(); });
  }
  /// The groups of all stages.
  [[nodiscard]] const std::vector<Group>& all_groups() const { return emitter_.program().groups; }
  /// A unit's groups with gradients.
  [[nodiscard]] std::vector<const GroupState*> trainable_of(std::size_t unit) const {
    std::vector<const GroupState*> all;
    for (const std::size_t g : units[unit].trainable) all.push_back(&groups[g]);
    return all;
  }
  /// The unit's orthogonalised group, or null: among expert-parallel groups, or among the others.
  [[nodiscard]] const GroupState* orthogonal_of(std::size_t unit, bool dealt) const {
    for (const GroupState* group : trainable_of(unit))
      if (!group->matrices.empty() && group->group->shard.empty() != dealt) return group;
    return nullptr;
  }
  /// The stream of the last reduction of every gradient, and of the parts of the norm.
  [[nodiscard]] StreamRole norm_stream() const;
  /// Trainable groups of a chunk of any stage, as their numbers in the norm.
  [[nodiscard]] Interval norm_parts(const UnitSpan& of) const;
  /// The number of first ranks whose parts of the norm include each element once.
  [[nodiscard]] std::int64_t norm_ranks() const;

  /// This rank's part of a group's elements in a buffer, sharded along these axes. If the buffer
  /// itself is not sharded along one of them, the part begins at the rank's index on that axis.
  [[nodiscard]] Region slice(BufferId buffer, DType dtype, const GroupState& group,
                             const std::vector<Axis>& axes) const;
  /// This rank's slice of a group's main gradient, flat.
  [[nodiscard]] Region gradient_slice(const GroupState& group) const;
  /// The slice of the compute weights that this rank updates.
  [[nodiscard]] Region weight_slice(const GroupState& group) const;
  /// Casts of that slice.
  [[nodiscard]] Region cast_slice(const GroupState& group) const;
  /// The group's largest magnitude, and the scale of its casts.
  [[nodiscard]] Region amax_of(const GroupState& group) const;
  [[nodiscard]] Region scale_of(const GroupState& group) const;
  /// This rank's slices of the group's optimizer states, as operands of a kernel.
  void add_states(const GroupState& group, Kernel& kernel) const;
  /// The step block and, with clipping, the norm; with `scales` the loss scale, too.
  void add_settings(Kernel& kernel, bool scales) const;
  /// The report's halves: loss, tokens, 1/T; then norm, clip factor, non-finite flag.
  [[nodiscard]] Region report_loss() const;
  [[nodiscard]] Region report_norm() const;
  /// Elements of these slices.
  [[nodiscard]] std::int64_t slice_elements(const GroupState& group) const;

 private:
  /// The names of a group's buffers begin with this.
  [[nodiscard]] std::string prefix_of(const Group& group) const;
  void make_group_buffers(Emitter& emitter, const Group& group, const Model& model);
  /// Adds the group, whose buffers are made, to its unit.
  void add_group(GroupState state, const Model& model);
  void make_globals(Emitter& emitter);

  const Emitter& emitter_;
  const PlanConfig& config_;
  BufferId rope_table_;
  BufferId local_rope_table_;  ///< of the layers that have another table
  BufferId gemm_workspace_;
};

}  // namespace mfsdp::schedule
