#include "core/schedule/state.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/shard/groups.hpp"

namespace mfsdp::schedule {

Layout::Layout(const PlanConfig& config) {
  const Placements inner = placements_of(config.strategy, config.mesh.dp_shard);
  gather = inner.parameter == Placement::shard;
  shard_optimizer = inner.optimizer == Placement::shard;
  refresh = shard_optimizer && !gather;
  shard_gradient = inner.gradient == Placement::shard;
  reduce = config.mesh.dp_shard > 1;
  outer = config.mesh.dp_outer > 1;
  outer_shard =
      placements_of(config.outer_strategy, config.mesh.dp_outer).optimizer == Placement::shard;
}

State::State(Emitter& emitter, const Model& model)
    : layout(emitter.config()), config_(emitter.config()) {
  Program& program = emitter.program();
  program.groups = make_groups(model, config_);
  for (const Unit& unit : model.units) {
    program.units.push_back({.id = unit.id, .name = unit.name, .kind = unit.kind});
    UnitState state;
    state.id = unit.id;
    state.name = unit.name;
    units.push_back(std::move(state));
  }
  for (const Group& group : program.groups) make_group_buffers(emitter, group);
  make_globals(emitter);
}

void State::make_group_buffers(Emitter& emitter, const Group& group) {
  UnitState& unit = units[group.unit.value];
  const std::string prefix = unit.name + (group.requires_grad ? "." : ".frozen.");
  const ResidentElements resident = resident_elements(group, config_);
  GroupState state;
  state.group = &group;
  state.model_weight =
      emitter.persistent(prefix + "model_weight", Category::model_weight, config_.param_dtype,
                         resident.model_weight, PoolRole::model_weights, unit.id);
  const auto make = [&](const std::string& name, Category category, DType dtype,
                        std::int64_t elements) {
    return emitter.persistent(prefix + name, category, dtype, elements, PoolRole::state, unit.id);
  };
  if (resident.main_weight > 0)
    state.main_weight =
        make("main_weight", Category::main_weight, config_.main_dtype, resident.main_weight);
  if (resident.main_grad > 0)
    state.main_grad =
        make("main_grad", Category::main_grad, config_.grad_dtype, resident.main_grad);
  if (resident.optimizer_state > 0)
    for (const char* name : {"exp_avg", "exp_avg_sq"})
      state.moments.push_back(make(name, Category::optimizer_state, config_.statistic_dtype(),
                                   resident.optimizer_state / 2));
  if (group.requires_grad) {
    state.norm_index = trainable_groups++;
    unit.trainable = groups.size();
  }
  unit.groups.push_back(groups.size());
  unit.weight_bytes =
      group.full_offset + round_up(bytes_of(group.elements, group.dtype).value, 256);
  groups.push_back(std::move(state));
}

void State::make_globals(Emitter& emitter) {
  const std::int64_t world = config_.mesh.world_size();
  const std::int64_t token_count = 2 * config_.tokens_per_microbatch();
  const auto trainable = static_cast<std::int64_t>(trainable_groups);
  const auto make = [&](const std::string& name, DType dtype, std::int64_t elements,
                        PoolRole pool = PoolRole::workspace) {
    return emitter.persistent(name, Category::workspace, dtype, elements, pool, std::nullopt);
  };
  tokens = make(std::string(global::tokens), DType::int32, token_count);
  staged_tokens = make("staged_tokens", DType::int32, token_count);
  pinned_tokens = make("pinned_tokens", DType::int32, token_count, PoolRole::pinned);
  rope_table_ = make(std::string(global::rope_table), DType::fp32,
                     checked_mul(config_.seq_len, config_.model.head_dim));
  gemm_workspace_ = make(std::string(global::gemm_workspace), DType::uint8, kGemmWorkspaceBytes);
  step_block = make("step_block", DType::uint8, 64);
  pinned_step_block = make("pinned_step_block", DType::uint8, 64, PoolRole::pinned);
  loss_sums = make(std::string(global::loss_sums), config_.statistic_dtype(), 2);
  gathered_sums = make("gathered_sums", config_.statistic_dtype(), checked_mul(2, world));
  norm_dtype = config_.exact_sums ? DType::int64 : DType::fp32;
  norm_partials = make("norm_partials", norm_dtype, trainable);
  norm_workspace = make("norm_workspace", DType::uint8, kSumWorkspaceBytes);
  gathered_norms = make("gathered_norms", norm_dtype, checked_mul(trainable, world));
  report = make("report", DType::fp32, 8);
  pinned_report = make("pinned_report", DType::fp32, 8, PoolRole::pinned);
}

BufferId State::global(const std::string& name) const {
  if (name == global::tokens) return tokens;
  if (name == global::rope_table) return rope_table_;
  if (name == global::gemm_workspace) return gemm_workspace_;
  if (name == global::loss_sums) return loss_sums;
  throw std::logic_error("no global buffer " + name);
}

State::Place State::find(std::size_t unit, ParameterRole role) const {
  for (const std::size_t g : units[unit].groups)
    for (const PlacedParameter& parameter : groups[g].group->parameters)
      if (parameter.role == role) return {.group = &groups[g], .parameter = &parameter};
  throw std::logic_error("unit " + units[unit].name + " has no " +
                         std::string(mfsdp::to_string(role)));
}

std::int64_t State::slice_elements(const GroupState& group) const {
  std::int64_t elements = group.group->elements;
  if (layout.shard_optimizer) elements /= config_.mesh.dp_shard;
  if (layout.outer_shard) elements /= config_.mesh.dp_outer;
  return elements;
}

/// Where the optimizer's slice begins in a buffer that holds `resident` elements of the group:
/// a buffer that is not cut along an axis is entered at the rank's index on it.
Region State::slice(BufferId buffer, std::int64_t resident, const GroupState& group) const {
  const std::int64_t elements = slice_elements(group);
  Region region{
      .buffer = buffer, .offset = 0, .dtype = DType::bf16, .shape = {elements}, .rank_strides = {}};
  const std::int64_t shard = group.group->elements / config_.mesh.dp_shard;
  if (layout.shard_optimizer && resident == group.group->elements)
    region.rank_strides.push_back({.axis = Axis::dp_shard, .bytes = shard});
  if (layout.outer_shard)
    region.rank_strides.push_back({.axis = Axis::dp_outer, .bytes = elements});
  return region;
}

namespace {

Region in_dtype(Region region, DType dtype) {
  region.dtype = dtype;
  for (RankStride& stride : region.rank_strides)
    stride.bytes = checked_mul(stride.bytes, size_of(dtype));
  return region;
}

}  // namespace

Region State::gradient_slice(const GroupState& group) const {
  return in_dtype(
      slice(*group.main_grad, resident_elements(*group.group, config_).main_grad, group),
      config_.grad_dtype);
}

Region State::weight_slice(const GroupState& group) const {
  return in_dtype(
      slice(group.model_weight, resident_elements(*group.group, config_).model_weight, group),
      config_.param_dtype);
}

}  // namespace mfsdp::schedule
