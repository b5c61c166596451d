// Weights of FP8 GEMMs with fp8_gather. Each run of a plan begins with their casts, so that nothing of
// them outlives an update:
//
//   shards --amax--> weight_amax --max over ranks--> whole weights' --cast--> casts of shards, scales
//
// The scale is that of the whole weight, and what is cast is its rounding to the compute dtype: a
// cast has the bits that casting the gathered weight would give. Casts are gathered for each use,
// or once where the strategy keeps whole weights.
#include "core/schedule/microbatch.hpp"

namespace mfsdp::schedule {
namespace {

/// A flat slice as a matrix of one row.
Region as_row(Region slice) {
  slice.shape.insert(slice.shape.begin(), 1);
  return slice;
}

}  // namespace

void MicrobatchSchedule::cast_weights() {
  if (state_.fp8_groups == 0) return;
  const auto sizes = [](const Region& row) {
    return std::vector<Attribute>{{"cols", row.shape[1]}, {"rows", 1}};
  };
  bool is_cut = false;
  for (const GroupState& group : state_.groups) {
    if (!group.group->fp8) continue;
    is_cut = is_cut || group.route.gather;
    const Region input = as_row(state_.weight_slice(group));
    Kernel amax{.kind = KernelKind::amax,
                .operands = {operand("input", Access::read, input),
                             operand("amax", Access::write, state_.amax_of(group))},
                .attributes = sizes(input)};
    amax.attributes.insert(amax.attributes.begin(), {"beta", 0});
    const UnitState& unit = state_.units[group.group->unit.value];
    e_.emit(StreamRole::compute, Phase::refresh, unit.id, group_name(unit, group) + ".amax",
            std::move(amax), group.group->id);
  }
  if (is_cut) {
    const Region all{.buffer = state_.weight_amax,
                     .dtype = DType::fp32,
                     .shape = {static_cast<std::int64_t>(state_.fp8_groups)}};
    e_.record(StreamRole::compute, Phase::refresh, event("weight_amax"));
    e_.wait(StreamRole::outer, Phase::refresh, event("weight_amax"));
    e_.max_over_ranks(Phase::refresh, event("weight_amax.all_reduce"), all);
    e_.record(StreamRole::outer, Phase::refresh, event("weight_amax.whole"));
    e_.wait(StreamRole::compute, Phase::refresh, event("weight_amax.whole"));
  }
  for (std::size_t u = 0; u < state_.units.size(); ++u) {
    const UnitState& unit = state_.units[u];
    bool casts = false;
    bool once = false;
    for (const std::size_t g : unit.groups) {
      const GroupState& group = state_.groups[g];
      if (!group.group->fp8) continue;
      casts = true;
      once = once || (group.route.gather && !group.gathers_casts);
      const Region input = as_row(state_.weight_slice(group));
      Kernel cast{.kind = KernelKind::cast_scaled,
                  .operands = {operand("input", Access::read, input),
                               operand("amax", Access::read, state_.amax_of(group)),
                               operand("output", Access::write, as_row(state_.cast_slice(group))),
                               operand("output_scale", Access::write, state_.scale_of(group))},
                  .attributes = sizes(input)};
      if (group.group->dtype != config_.param_dtype)
        cast.attributes.emplace_back("through_bf16", 1);
      e_.emit(StreamRole::compute, Phase::refresh, unit.id, group_name(unit, group) + ".cast",
              std::move(cast), group.group->id);
    }
    if (!casts) continue;
    if (once || unit.cast_bytes > 0)
      e_.record(StreamRole::compute, Phase::refresh, event("cast." + unit.name));
    if (once) gather_casts_once(unit);
  }
}

/// In place: each rank's slice to all others.
void MicrobatchSchedule::gather_casts_once(const UnitState& unit) {
  const AxisTraffic* on = nullptr;
  for (const std::size_t g : unit.groups)
    if (state_.groups[g].group->fp8) on = state_.groups[g].route.gather->on;
  e_.wait(on->gather_stream, Phase::refresh, event("cast." + unit.name));
  for (const std::size_t g : unit.groups) {
    const GroupState& group = state_.groups[g];
    if (!group.group->fp8) continue;
    const Region own = state_.cast_slice(group);
    Region whole = own;
    whole.rank_strides.clear();
    whole.shape = {group.group->elements};
    e_.emit(on->gather_stream, Phase::refresh, unit.id, group_name(unit, group) + ".all_gather",
            Collective{.kind = CollectiveKind::all_gather,
                       .communicator = e_.communicator(on->gather_communicator),
                       .reduction = Reduction::none,
                       .count = own.shape[0],
                       .dtype = own.dtype,
                       .input = operand("input", Access::read, own),
                       .output = operand("output", Access::write, whole)},
            group.group->id);
  }
  e_.record(on->gather_stream, Phase::refresh, event("casts." + unit.name));
  casts_not_waited_for_.insert(unit.id.value);
}

void MicrobatchSchedule::await_casts(std::size_t unit) {
  if (casts_not_waited_for_.erase(unit) > 0)
    e_.wait(StreamRole::compute, phase_, event("casts." + state_.units[unit].name));
}

BufferId MicrobatchSchedule::gathered_casts(std::size_t unit, BufferId weights) const {
  const UnitState& state = state_.units[unit];
  BufferForm form{.category = Category::unsharded_weight,
                  .dtype = DType::fp8_e4m3,
                  .elements = state.cast_bytes,
                  .pool = PoolRole::unsharded_weights,
                  .unit = state.id,
                  .holds = Contents{.kind = ContentKind::cast_parameter},
                  .slot_class = "casts"};
  for (const std::size_t g : state.groups)
    if (state_.groups[g].gathers_casts)
      form.holds->groups.push_back(
          {.group = state_.groups[g].group->id, .offset = state_.groups[g].full_offset});
  return e_.buffer(e_.at(weights).name + ".casts", form);
}

Region MicrobatchSchedule::cast_region(std::size_t unit, ParameterRole role) const {
  const auto [group, parameter] = state_.find(unit, role);
  const BufferId buffer = group->gathers_casts ? *carry_.casts[unit] : *group->casts;
  return {.buffer = buffer,
          .offset = parameter->offset + (group->gathers_casts ? group->full_offset : 0),
          .dtype = DType::fp8_e4m3};
}

}  // namespace mfsdp::schedule
