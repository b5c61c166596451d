#include "core/shard/groups.hpp"

#include <algorithm>
#include <map>
#include <optional>

#include "core/plan/nf4.hpp"

namespace mfsdp {
namespace {

/// Computes one layout per list of sizes, as blocks repeat.
class LayoutCache {
 public:
  LayoutCache(const PlanConfig& config, std::int64_t ranks)
      : rule_(config.layout),
        ranks_(ranks),
        block_(config.state_dtype == StateDtype::blockwise8 ? kStateBlock : 1) {}

  const FlatLayout& get(const std::vector<LayoutItem>& items, bool quantised) {
    const std::int64_t block = quantised ? kNf4Elements : block_;
    std::vector<std::int64_t> key{block};
    for (const LayoutItem& item : items) key.insert(key.end(), {item.elements, item.row});
    auto found = layouts_.find(key);
    if (found == layouts_.end())
      found = layouts_.emplace(std::move(key), make_flat_layout(rule_, items, ranks_, block)).first;
    return found->second;
  }

 private:
  LayoutRule rule_;
  std::int64_t ranks_;
  std::int64_t block_;  ///< elements that are never split between ranks
  std::map<std::vector<std::int64_t>, FlatLayout> layouts_;
};

/// Groups of a unit: by optimizer, then what is frozen.
std::vector<std::optional<Optimizer>> optimizers_of(const PlanConfig& config) {
  std::vector<std::optional<Optimizer>> all{config.optimizer};
  if (orthogonalises(config.optimizer)) all.emplace_back(Optimizer::adamw);
  all.emplace_back(std::nullopt);
  return all;
}

/// `inner`: axes that the strategy shards together, outermost first.
Cuts cuts_along(const std::vector<Axis>& inner, Strategy strategy, Axis outer,
                const PlanConfig& config) {
  Cuts cuts;
  const auto cut = [&](Axis axis, Strategy by) {
    const Sharded sharded = sharded_by(by, config.mesh.size(axis));
    const AxisPlacement flat{.axis = axis, .kind = PlacementKind::flat, .dim = {}};
    if (sharded.parameter) cuts.weight.push_back(flat);
    if (sharded.gradient) cuts.gradient.push_back(flat);
    if (sharded.state) cuts.state.push_back(flat);
    return sharded.state;
  };
  for (const Axis axis : inner) {
    cut(axis, strategy);
    // All strategies have one layout, which is sharded along every axis of any of them.
    if (config.mesh.size(axis) > 1) cuts.layout.push_back(axis);
  }
  if (cut(outer, config.outer_strategy)) cuts.layout.push_back(outer);
  return cuts;
}

}  // namespace

Cuts cuts_of(const PlanConfig& config) {
  return cuts_along({Axis::dp_shard, Axis::cp}, config.strategy, Axis::dp_outer, config);
}

Cuts whole_cuts_of(const PlanConfig& config) {
  return cuts_along({Axis::dp_shard, Axis::cp, Axis::tp}, config.strategy, Axis::dp_outer, config);
}

Cuts expert_cuts_of(const PlanConfig& config) {
  return cuts_along({Axis::expt_dp}, config.strategy_of_experts(), Axis::expt_dp_outer, config);
}

bool is_expert_parallel(ParameterRole role, const PlanConfig& config) {
  using enum ParameterRole;
  return config.is_expert_parallel() && (role == experts_gate_up || role == experts_down ||
                                         role == experts_gate_up_bias || role == experts_down_bias);
}

std::int64_t layout_ranks(const PlanConfig& config) {
  return ranks_on(cuts_of(config).layout, config.mesh);
}

namespace {

/// The properties that one kind of groups shares.
struct GroupKind {
  std::optional<Optimizer> optimizer;  ///< none: frozen
  bool expert_parallel = false;        ///< expert-parallel
  bool quantised = false;
  std::optional<std::int64_t> tensor_dim{};  ///< that tp cuts
  std::optional<ParameterRole> fp8{};        ///< the one matrix, whose casts are gathered
};

/// The parameter's role if its group has no other, because its casts are gathered.
std::optional<ParameterRole> matrix_of_fp8(const Unit& unit, ParameterRole role,
                                           const PlanConfig& config) {
  const auto block = static_cast<std::int64_t>(unit.id.value) - 1;
  const bool is_one = unit.kind == UnitKind::block && config.gathers_fp8(block, role);
  return is_one ? std::optional(role) : std::nullopt;
}

/// The dim of a parameter that the ranks of tp cut, if there are several.
std::optional<std::int64_t> dim_over_tp(ParameterRole role, const PlanConfig& config) {
  return config.mesh.size(Axis::tp) > 1 ? tensor_dim(role) : std::nullopt;
}

std::vector<GroupKind> kinds_of(const PlanConfig& config) {
  std::vector<GroupKind> kinds;
  for (const std::optional<Optimizer>& optimizer : optimizers_of(config)) {
    if (config.mesh.size(Axis::tp) > 1)
      for (const std::int64_t dim : {0, 1})
        kinds.push_back({.optimizer = optimizer, .tensor_dim = dim});
    kinds.push_back({.optimizer = optimizer});
    if (config.is_expert_parallel())
      kinds.push_back({.optimizer = optimizer, .expert_parallel = true});
  }
  if (config.base_dtype != BaseDType::compute)
    kinds.push_back({.optimizer = std::nullopt, .expert_parallel = false, .quantised = true});
  if (config.fp8_gather)
    for (const ParameterRole matrix : kFp8Matrices)
      kinds.push_back({.optimizer = config.optimizer, .fp8 = matrix});
  return kinds;
}

Group empty_group(const GroupKind& kind, const Cuts& cuts, const PlanConfig& config) {
  Group group;
  group.fp8 = kind.fp8.has_value();
  group.dtype = group.fp8 ? config.main_dtype : config.param_dtype;
  group.requires_grad = kind.optimizer.has_value();
  group.quantised = kind.quantised;
  group.cut = cuts.layout;
  group.weight = group.fp8 ? cuts.state : cuts.weight;
  group.gradient = cuts.gradient;
  group.state = cuts.state;
  if (kind.expert_parallel) group.shard = expert_shard();
  if (kind.tensor_dim)
    group.shard = {{.axis = Axis::tp, .kind = PlacementKind::shard, .dim = kind.tensor_dim}};
  group.reduce = data_axes(config.mesh, group.shard);
  group.optimizer = kind.optimizer;
  return group;
}

}  // namespace

std::vector<Group> make_groups(const Model& model, const PlanConfig& config) {
  const Cuts dense = cuts_of(config);
  const Cuts whole = whole_cuts_of(config);
  const Cuts experts = expert_cuts_of(config);
  LayoutCache dense_layouts(config, ranks_on(dense.layout, config.mesh));
  LayoutCache whole_layouts(config, ranks_on(whole.layout, config.mesh));
  LayoutCache expert_layouts(config, ranks_on(experts.layout, config.mesh));
  std::vector<Group> groups;
  for (const Unit& unit : model.units)
    for (const GroupKind& kind : kinds_of(config)) {
      std::vector<LayoutItem> items;
      const Cuts& cuts = kind.expert_parallel ? experts : kind.tensor_dim ? dense : whole;
      LayoutCache& layouts = kind.expert_parallel ? expert_layouts
                             : kind.tensor_dim    ? dense_layouts
                                                  : whole_layouts;
      Group group = empty_group(kind, cuts, config);
      group.id = GroupId(groups.size());
      group.unit = unit.id;
      for (const std::size_t p : unit.parameters) {
        const Parameter& parameter = model.parameters[p];
        std::optional<Optimizer> its_own;
        if (!config.is_frozen(parameter.name)) its_own = config.optimizer_of(unit.kind, parameter);
        if (its_own != kind.optimizer ||
            config.is_quantised(unit.kind, parameter) != kind.quantised ||
            is_expert_parallel(parameter.role, config) != kind.expert_parallel ||
            dim_over_tp(parameter.role, config) != kind.tensor_dim ||
            matrix_of_fp8(unit, parameter.role, config) != kind.fp8)
          continue;
        std::vector<std::int64_t> shape = parameter.shape;
        if (kind.expert_parallel) shape[0] /= config.expert_parallel;
        std::int64_t row = parameter.row_elements();
        if (kind.tensor_dim) {
          const std::int64_t ranks = config.mesh.size(Axis::tp);
          shape[static_cast<std::size_t>(*kind.tensor_dim)] /= ranks;
          if (*kind.tensor_dim == 1) row /= ranks;
        }
        items.push_back({.elements = product_of(shape), .row = row});
        group.parameters.push_back({.name = parameter.name,
                                    .role = parameter.role,
                                    .shape = std::move(shape),
                                    .offset = 0,
                                    .decay = config.decays(parameter.name, parameter.decay),
                                    .rate = config.rate_of(parameter.name)});
      }
      if (items.empty()) continue;
      const FlatLayout& layout = layouts.get(items, kind.quantised);
      group.chunk = layout.chunk;
      group.elements = layout.elements;
      for (std::size_t i = 0; i < items.size(); ++i) group.parameters[i].offset = layout.offsets[i];
      groups.push_back(std::move(group));
    }
  return groups;
}

DType weight_gradient_dtype(const PlanConfig& config) {
  return cuts_of(config).gradient.empty() ? config.grad_dtype : config.reduce_dtype;
}

FlatLayout layout_of(const Group& group, const Mesh& mesh) {
  FlatLayout layout{
      .chunk = group.chunk, .elements = group.elements, .ranks = ranks_on(group.cut, mesh)};
  for (const PlacedParameter& parameter : group.parameters) {
    layout.offsets.push_back(parameter.offset);
    layout.sizes.push_back(parameter.elements());
  }
  return layout;
}

PlacedParameter whole_parameter(PlacedParameter parameter, const Group& group, const Mesh& mesh) {
  parameter.shape = whole_shape(std::move(parameter.shape), group.shard, mesh);
  return parameter;
}

bool is_first_replica(const Group& group, const Mesh& mesh, std::int64_t rank) {
  std::vector<Axis> apart = flat_axes(group.state);
  for (const AxisPlacement& on : group.shard) apart.push_back(on.axis);
  // Parameters of experts have their own grid.
  const bool of_experts =
      std::ranges::find(group.shard, Axis::ep, &AxisPlacement::axis) != group.shard.end();
  return std::ranges::all_of(of_experts ? mesh.experts : mesh.dense, [&](const MeshAxis& on) {
    return std::ranges::find(apart, on.axis) != apart.end() || mesh.index(rank, on.axis) == 0;
  });
}

ResidentElements resident_elements(const Group& group, const PlanConfig& config) {
  const auto held = [&](const Placement& placement) {
    return interval_of(group.elements, placement, config.mesh, 0).size();
  };
  ResidentElements resident{.model_weight = held(group.weight)};
  if (!group.requires_grad) return resident;
  if (config.main_dtype != group.dtype) resident.main_weight = held(group.state);
  resident.main_grad = held(group.gradient);
  for (const KeptState& state : config.kept_states(*group.optimizer))
    resident.states.push_back({.state = state, .values = state.values(held(group.state))});
  return resident;
}

}  // namespace mfsdp
