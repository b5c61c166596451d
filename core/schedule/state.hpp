// The persistent buffers of a program, and where parameters and gradients lie in them.
#pragma once

#include <optional>
#include <vector>

#include "core/model/model.hpp"
#include "core/recipe/recipe.hpp"
#include "core/schedule/emitter.hpp"

namespace mfsdp::schedule {

/// What each parallel decision comes to under a configuration.
struct Layout {
  explicit Layout(const PlanConfig& config);

  bool gather;           ///< weights are sharded: gathered before each use
  bool refresh;          ///< weights are whole but updated in slices: gathered after the update
  bool shard_gradient;   ///< each microbatch's gradient is reduced into a shard
  bool reduce;           ///< gradients cross the dp_shard axis at all
  bool outer;            ///< there is a dp_outer axis
  bool outer_shard;      ///< HFSDP: optimizer state is cut along it too
  bool shard_optimizer;  ///< the update works on one rank's slice
};

struct GroupState {
  const Group* group = nullptr;
  BufferId model_weight;
  std::optional<BufferId> main_weight;
  std::optional<BufferId> main_grad;
  std::vector<BufferId> optimizer_states;  ///< as its optimizer lists them
  std::size_t norm_index = 0;              ///< among trainable groups
  std::int64_t full_offset = 0;            ///< bytes, in its unit's gathered weights
};

struct UnitState {
  UnitId id;
  std::string name;
  std::vector<std::size_t> groups;       ///< indices into State::groups
  std::optional<std::size_t> trainable;  ///< the one group with gradients
  std::int64_t weight_bytes = 0;         ///< of all groups gathered, each aligned
};

/// Buffers by name for recipes, and the persistent state of all groups.
class State {
 public:
  State(Emitter& emitter, const Model& model);

  const Layout layout;
  std::vector<GroupState> groups;
  std::vector<UnitState> units;
  std::size_t trainable_groups = 0;

  BufferId tokens;         ///< int32 [2, T] of this microbatch
  BufferId staged_tokens;  ///< int32 [2, T] as copied from the host
  BufferId pinned_tokens;
  BufferId step_block;  ///< 64 bytes: learning rate, bias corrections, step, seed
  BufferId pinned_step_block;
  BufferId loss_sums;       ///< statistic dtype [2]
  BufferId gathered_sums;   ///< statistic dtype [world, 2]
  DType norm_dtype;         ///< of sums of squares: fp32, or int64 with exact sums
  BufferId norm_partials;   ///< norm_dtype [trainable groups]
  BufferId norm_workspace;  ///< of the one stream that makes them
  BufferId gathered_norms;  ///< norm_dtype [world, trainable groups]
  BufferId report;          ///< fp32 [8]: loss, tokens, 1/T, norm, clip factor, non-finite flag
  BufferId pinned_report;

  /// The persistent buffer that a recipe calls by this name.
  [[nodiscard]] BufferId global(const std::string& name) const;

  /// A parameter of a unit: its group and element offset.
  struct Place {
    const GroupState* group;
    const PlacedParameter* parameter;
  };
  [[nodiscard]] Place find(std::size_t unit, ParameterRole role) const;

  /// This rank's slice of a group's main gradient, as the optimizer sees it (flat).
  [[nodiscard]] Region gradient_slice(const GroupState& group) const;
  /// The slice of the compute weights that this rank updates.
  [[nodiscard]] Region weight_slice(const GroupState& group) const;
  /// Elements of these slices.
  [[nodiscard]] std::int64_t slice_elements(const GroupState& group) const;

 private:
  void make_group_buffers(Emitter& emitter, const Group& group);
  void make_globals(Emitter& emitter);
  [[nodiscard]] Region slice(BufferId buffer, DType dtype, const GroupState& group) const;

  const Emitter& emitter_;
  const PlanConfig& config_;
  BufferId rope_table_;
  BufferId gemm_workspace_;
};

}  // namespace mfsdp::schedule
