#include "core/schedule/state.hpp"

#include <fmt/format.h>

#include <stdexcept>
#include <utility>

#include "core/plan/fp8.hpp"
#include "core/plan/nf4.hpp"
#include "core/plan/transport.hpp"
#include "core/shard/groups.hpp"

namespace mfsdp::schedule {
namespace {

/// cuBLASLt takes scales that begin on multiples of 16 bytes.
constexpr std::int64_t kScaleFloats = 4;

/// "q_proj" for "model.layers.0.self_attn.q_proj.weight"; with its number for an expert:
/// "3.up_proj".
std::string short_name(const std::string& parameter) {
  const std::size_t end = parameter.rfind('.');
  std::size_t begin = parameter.rfind('.', end - 1);
  const std::size_t before = parameter.rfind('.', begin - 1);
  const std::string number = parameter.substr(before + 1, begin - before - 1);
  if (number.find_first_not_of("0123456789") == std::string::npos) begin = before;
  return parameter.substr(begin + 1, end - begin - 1);
}

std::vector<GroupMatrix> matrices_of(const Group& group, const Model& model, const Mesh& mesh) {
  std::vector<GroupMatrix> matrices;
  for (const PlacedParameter& placed : group.parameters) {
    const Unit& unit = model.units[group.unit.value];
    const auto parameter = std::ranges::find_if(
        unit.parameters, [&](std::size_t p) { return model.parameters[p].name == placed.name; });
    std::vector<ParameterPart> parts = model.parameters[*parameter].parts;
    // Expert-parallel: the experts of one rank, with the names of the first rank's.
    for (const AxisPlacement& along : group.shard)
      parts.resize(parts.size() / static_cast<std::size_t>(mesh.size(along.axis)));
    if (parts.empty()) parts = {{.name = placed.name, .rows = placed.shape[0]}};
    std::int64_t offset = placed.offset;
    for (const ParameterPart& part : parts) {
      matrices.push_back({.name = short_name(part.name),
                          .offset = offset,
                          .rows = part.rows,
                          .cols = placed.shape[1]});
      offset += part.rows * placed.shape[1];
    }
  }
  return matrices;
}

}  // namespace

std::string suffix_of(const Group& group, const Mesh& mesh) {
  if (group.fp8) return "." + std::string(to_string(group.parameters[0].role));
  if (mesh.size(Axis::tp) == 1) return group.shard.empty() ? "" : ".experts";
  if (group.shard.empty()) return ".whole";
  if (group.shard.front().axis != Axis::tp) return ".experts";
  return group.shard.front().dim == 0 ? "" : ".inputs";
}

State::State(Emitter& emitter, const Model& model, PipelineStage of)
    : stage(std::move(of)), emitter_(emitter), config_(emitter.config()) {
  Program& program = emitter.program();
  program.groups = make_groups(model, config_);
  for (const Unit& unit : model.units) {
    program.units.push_back({.id = unit.id,
                             .name = unit.name,
                             .kind = unit.kind,
                             .position = std::ssize(program.units)});
    UnitState state;
    state.id = unit.id;
    state.name = unit.name;
    units.push_back(std::move(state));
  }
  for (const Group& group : program.groups) make_group_buffers(emitter, group, model);
  make_globals(emitter);
}

std::string State::prefix_of(const Group& group) const {
  const UnitState& unit = units[group.unit.value];
  // The second group with gradients of those with one suffix has another name.
  const std::string suffix = suffix_of(group, config_.mesh);
  const bool is_second =
      group.requires_grad && std::ranges::any_of(unit.trainable, [&](std::size_t g) {
        return suffix_of(*groups[g].group, config_.mesh) == suffix;
      });
  return unit.name + suffix +
         (group.quantised       ? ".base."
          : is_second           ? ".vectors."
          : group.requires_grad ? "."
                                : ".frozen.");
}

void State::make_group_buffers(Emitter& emitter, const Group& group, const Model& model) {
  if (!stage.has(group.unit.value)) {
    if (group.requires_grad) ++trainable_groups;
    return;
  }
  const UnitState& unit = units[group.unit.value];
  const std::string prefix = prefix_of(group);
  const ResidentElements resident = resident_elements(group, config_);
  GroupState state;
  state.group = &group;
  state.route = route_of(group, config_.mesh);
  const auto make = [&](const std::string& name, Category category, DType dtype,
                        std::int64_t elements, PoolRole pool, Contents holds) {
    holds.groups = {{.group = group.id, .offset = 0}};
    return emitter.persistent(prefix + name, {.category = category,
                                              .dtype = dtype,
                                              .elements = elements,
                                              .pool = pool,
                                              .unit = unit.id,
                                              .holds = std::move(holds)});
  };
  state.model_weight =
      make("model_weight", Category::model_weight, group.quantised ? DType::uint8 : group.dtype,
           group.quantised ? nf4_bytes(resident.model_weight) : resident.model_weight,
           group.fp8 ? PoolRole::state : PoolRole::model_weights,
           {.kind = ContentKind::parameter, .placement = group.weight});
  if (group.fp8) {
    state.gathers_casts = state.route.gather && config_.strategy == Strategy::optim_grads_params;
    state.fp8_index = fp8_groups++;
    state.casts =
        make("casts", Category::model_weight, DType::fp8_e4m3,
             state.gathers_casts ? resident.model_weight : group.elements, PoolRole::model_weights,
             {.kind = ContentKind::cast_parameter,
              .placement = state.gathers_casts ? group.weight : Placement{}});
  }
  if (group.quantised)
    state.scale_means =
        emitter.persistent(prefix + "scale_means", {.category = Category::model_weight,
                                                    .dtype = DType::fp32,
                                                    .elements = std::ssize(group.parameters),
                                                    .pool = PoolRole::model_weights,
                                                    .unit = unit.id});
  if (resident.main_weight > 0)
    state.main_weight =
        make("main_weight", Category::main_weight, config_.main_dtype, resident.main_weight,
             PoolRole::state, {.kind = ContentKind::main_parameter, .placement = group.state});
  // If the main gradient has the reduction dtype, sums may be written directly into it.
  const TransportTraits& transport = traits_of(emitter.reduces_by());
  const bool sums_arrive = transport.uses_windows && transport.adds &&
                           state.route.shards_gradient() &&
                           config_.reduce_dtype == config_.grad_dtype;
  if (resident.main_grad > 0)
    state.main_grad = make("main_grad", Category::main_grad, config_.grad_dtype, resident.main_grad,
                           sums_arrive ? PoolRole::reduced_gradients : PoolRole::state,
                           {.kind = ContentKind::gradient, .placement = group.gradient});
  for (const auto& [kept, values] : resident.states)
    state.optimizer_states.push_back(make(std::string(kept.name), Category::optimizer_state,
                                          kept.dtype, values, PoolRole::state,
                                          {.kind = ContentKind::optimizer_state,
                                           .placement = group.state,
                                           .state = std::string(kept.name)}));
  add_group(std::move(state), model);
}

void State::add_group(GroupState state, const Model& model) {
  const Group& group = *state.group;
  UnitState& unit = units[group.unit.value];
  if (group.requires_grad) {
    state.norm_index = trainable_groups++;
    unit.trainable.push_back(groups.size());
    if (orthogonalises(*group.optimizer)) state.matrices = matrices_of(group, model, config_.mesh);
  }
  unit.groups.push_back(groups.size());
  if (state.passes_through()) {
    state.full_offset = unit.weight_bytes;
    unit.weight_bytes =
        checked_add(unit.weight_bytes, round_up(bytes_of(group.elements, group.dtype).value, 256));
  }
  if (state.gathers_casts) {
    state.full_offset = unit.cast_bytes;
    unit.cast_bytes = checked_add(unit.cast_bytes, round_up(group.elements, 256));
  }
  groups.push_back(std::move(state));
}

void State::make_globals(Emitter& emitter) {
  const std::int64_t ranks = ranks_on(token_axes(config_.mesh), config_.mesh);
  const std::int64_t token_count =
      checked_mul(config_.token_rows(), config_.tokens_per_microbatch());
  const auto trainable = static_cast<std::int64_t>(trainable_groups);
  const auto make = [&](const std::string& name, DType dtype, std::int64_t elements,
                        PoolRole pool = PoolRole::workspace, std::optional<Port> port = {}) {
    BufferForm form{
        .category = Category::workspace, .dtype = dtype, .elements = elements, .pool = pool};
    if (port) form.holds = Contents{.kind = ContentKind::port, .port = port};
    return emitter.persistent(name, form);
  };
  if (stage.is_only())
    tokens = make(std::string(global::tokens), DType::int32, token_count);
  else if (reads_tokens())
    tokens = emitter.buffer(std::string(global::tokens),
                            {.dtype = DType::int32, .elements = token_count});
  if (reads_tokens()) {
    staged_tokens = make("staged_tokens", DType::int32, token_count);
    pinned_tokens =
        make("pinned_tokens", DType::int32, token_count, PoolRole::pinned, Port::tokens);
  }
  const std::int64_t angles = checked_mul(config_.seq_len, config_.model.rotated_dim());
  if (config_.model.traits().rotates)
    rope_table_ = make(std::string(global::rope_table), DType::fp32, angles, PoolRole::workspace,
                       Port::rope_table);
  if (config_.model.has_other_rope())
    local_rope_table_ = make(std::string(global::local_rope_table), DType::fp32, angles,
                             PoolRole::workspace, Port::local_rope_table);
  gemm_workspace_ = make(std::string(global::gemm_workspace), DType::uint8, kGemmWorkspaceBytes);
  step_block = make("step_block", DType::uint8, 64);
  pinned_step_block =
      make("pinned_step_block", DType::uint8, 64, PoolRole::pinned, Port::step_block);
  if (stage.is_last())
    loss_sums = make(std::string(global::loss_sums), config_.statistic_dtype(), 2);
  // With ranks of tp alone the loss is not gathered.
  const std::int64_t readers = ranks_on(loss_axes(config_.mesh), config_.mesh);
  if (stage.is_last() && (readers > 1 || ranks == 1))
    gathered_sums = make("gathered_sums", config_.statistic_dtype(), checked_mul(2, readers));
  norm_dtype = config_.exact_sums ? DType::int64 : DType::fp32;
  norm_partials = make("norm_partials", norm_dtype, trainable);
  norm_workspace = make("norm_workspace", DType::uint8, kSumWorkspaceBytes);
  if (stage.is_last())
    gathered_norms = make("gathered_norms", norm_dtype, checked_mul(trainable, ranks));
  if (fp8_groups > 0) {
    const auto count = static_cast<std::int64_t>(fp8_groups);
    weight_amax = make("weight_amax", DType::fp32, count);
    weight_scales = make("weight_scales", DType::fp32, checked_mul(kScaleFloats, count));
  }
  report = make("report", DType::fp32, 8);
  if (stage.is_last())
    pinned_report = make("pinned_report", DType::fp32, 8, PoolRole::pinned, Port::report);
  if (config_.scales_loss())
    loss_scale = make(std::string(global::loss_scale), DType::fp32, 4, PoolRole::workspace,
                      Port::loss_scale);
  if (config_.fp8 == Fp8Recipe::delayed)
    amax_history =
        make(std::string(global::amax_history), DType::fp32, mfsdp::amax_history::elements(config_),
             PoolRole::workspace, Port::amax_history);
}

BufferId State::global(const std::string& name) const {
  if (name == global::tokens) return tokens;
  if (name == global::rope_table) return rope_table_;
  if (name == global::local_rope_table) return local_rope_table_;
  if (name == global::gemm_workspace) return gemm_workspace_;
  if (name == global::loss_sums) return loss_sums;
  if (name == global::loss_scale) return loss_scale;
  if (name == global::amax_history && amax_history) return *amax_history;
  throw std::logic_error("no global buffer " + name);
}

Region State::report_loss() const {
  return {.buffer = report, .offset = 0, .dtype = DType::fp32, .shape = {4}, .rank_strides = {}};
}
Region State::report_norm() const {
  Region half = report_loss();
  half.offset = 16;
  return half;
}

void State::add_states(const GroupState& group, Kernel& kernel) const {
  const std::vector<KeptState> kept = config_.kept_states(*group.group->optimizer);
  for (std::size_t i = 0; i < kept.size(); ++i)
    kernel.operands.push_back(operand(std::string(kept[i].name), Access::read_write,
                                      {.buffer = group.optimizer_states[i],
                                       .dtype = kept[i].dtype,
                                       .shape = {kept[i].values(slice_elements(group))}}));
}

void State::add_settings(Kernel& kernel, bool scales) const {
  kernel.operands.push_back(
      operand("step_block", Access::read,
              {.buffer = step_block, .offset = 0, .dtype = DType::uint8, .shape = {64}}));
  if (scales) kernel.operands.push_back(operand("loss", Access::read, report_loss()));
  if (config_.updates_by_norm())
    kernel.operands.push_back(operand("norm", Access::read, report_norm()));
}

State::Place State::find(std::size_t unit, ParameterRole role) const {
  for (const std::size_t g : units[unit].groups)
    for (const PlacedParameter& parameter : groups[g].group->parameters)
      if (parameter.role == role) return {.group = &groups[g], .parameter = &parameter};
  throw std::logic_error("unit " + units[unit].name + " has no " +
                         std::string(mfsdp::to_string(role)));
}

std::int64_t State::slice_elements(const GroupState& group) const {
  return updated_interval(*group.group, config_.mesh, 0).size();
}

Interval State::norm_parts(const UnitSpan& of) const {
  Interval parts;
  for (const Group& group : emitter_.program().groups) {
    if (!group.requires_grad || group.unit.value >= of.end) continue;
    ++parts.end;
    if (group.unit.value < of.begin) ++parts.begin;
  }
  return parts;
}

StreamRole State::norm_stream() const {
  for (const GroupState& group : groups) {
    if (!group.group->requires_grad || group.route.reduces.empty()) continue;
    const AxisTraffic& last = *group.route.reduces.back().on;
    if (!last.wire) return last.reduce_stream;
  }
  return StreamRole::reduce_scatter;
}

std::int64_t State::norm_ranks() const {
  // Ranks of tp have other elements of every group: of some they cut a dim, of the others the flat
  // layout.
  std::vector<Axis> axes = groups.front().group->cut;
  if (std::ranges::find(axes, Axis::tp) == axes.end()) axes.push_back(Axis::tp);
  return ranks_on(axes, config_.mesh);
}

Region State::slice(BufferId buffer, DType dtype, const GroupState& group,
                    const std::vector<Axis>& axes) const {
  const Placement& held = emitter_.at(buffer).holds->placement;
  std::int64_t elements = group.group->elements;
  Region region{.buffer = buffer, .offset = 0, .dtype = dtype, .shape = {}, .rank_strides = {}};
  for (const Axis axis : axes) {
    elements /= config_.mesh.size(axis);
    if (std::ranges::find(held, axis, &AxisPlacement::axis) == held.end())
      region.rank_strides.push_back({.axis = axis, .bytes = checked_mul(elements, size_of(dtype))});
  }
  region.shape = {elements};
  return region;
}

Region State::gradient_slice(const GroupState& group) const {
  return slice(*group.main_grad, config_.grad_dtype, group, flat_axes(group.group->state));
}

Region State::weight_slice(const GroupState& group) const {
  return slice(group.model_weight, group.group->dtype, group, flat_axes(group.group->state));
}

Region State::cast_slice(const GroupState& group) const {
  return slice(*group.casts, DType::fp8_e4m3, group, flat_axes(group.group->state));
}

Region State::amax_of(const GroupState& group) const {
  return {.buffer = weight_amax,
          .offset = static_cast<std::int64_t>(group.fp8_index) * size_of(DType::fp32),
          .dtype = DType::fp32,
          .shape = {1}};
}

Region State::scale_of(const GroupState& group) const {
  return {
      .buffer = weight_scales,
      .offset = static_cast<std::int64_t>(group.fp8_index) * kScaleFloats * size_of(DType::fp32),
      .dtype = DType::fp32,
      .shape = {1}};
}

}  // namespace mfsdp::schedule
