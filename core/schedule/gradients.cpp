// From a unit's first weight gradient to its reduced main gradient.
#include <algorithm>

#include "core/schedule/microbatch.hpp"
#include "core/shard/groups.hpp"

namespace mfsdp::schedule {

namespace {

/// A buffer for the gradient of all of a group.
BufferForm full_gradient(const UnitState& unit, const Group& group, DType dtype) {
  return {.category = Category::unsharded_grad,
          .dtype = dtype,
          .elements = group.elements,
          .pool = PoolRole::gradients,
          .unit = unit.id,
          .holds =
              Contents{.kind = ContentKind::gradient, .groups = {{.group = group.id, .offset = 0}}},
          .slot_class = "gradients"};
}

}  // namespace

BufferId MicrobatchSchedule::gradient_slot(std::size_t unit) const {
  const UnitState& state = state_.units[unit];
  const Group& group = *state_.groups[*state.trainable].group;
  return e_.buffer(state.name + ".grad", full_gradient(state, group, config_.reduce_dtype));
}

/// A slot is taken before the unit's first weight gradient: compute waits until fewer than
/// grad_slots are in use, oldest reduction first.
void MicrobatchSchedule::begin_gradient(std::size_t unit, Position position) {
  if (state_.layout.shard_gradient) {
    // A tied unit takes its slot at the head and gives it back after the embedding's backward.
    std::size_t in_use = carry_.reducing.size();
    for (std::size_t u = 0; u < gradients_.size(); ++u)
      if (held_[u]) ++in_use;
    // The first slot of a microbatch also waits for all of the last one's reductions, which had a
    // whole forward to end: so the ends of two microbatches never need memory together.
    const bool drains = !gradient_begun_;
    gradient_begun_ = true;
    std::optional<std::size_t> awaited;
    const auto must_wait = [&] {
      return drains || in_use >= static_cast<std::size_t>(config_.grad_slots);
    };
    while (!carry_.reducing.empty() && must_wait()) {
      awaited = carry_.reducing.front();
      carry_.reducing.pop_front();
      --in_use;
    }
    // Reductions finish in stream order: the last one that is awaited stands for all before it.
    if (awaited)
      e_.wait(StreamRole::compute, Phase::backward, "reduced." + state_.units[*awaited].name);
    e_.acquire(StreamRole::compute, Phase::backward, gradient_slot(unit));
    held_[unit] = true;
    zero_padding(unit);
  } else if (position.first) {
    zero_padding(unit);
  }
}

/// No weight gradient writes the layout's gaps; norm and update read them.
void MicrobatchSchedule::zero_padding(std::size_t unit) {
  const UnitState& state = state_.units[unit];
  const GroupState& group = state_.groups[*state.trainable];
  const bool slot = state_.layout.shard_gradient;
  const DType dtype = slot ? config_.reduce_dtype : config_.grad_dtype;
  Kernel kernel{.kind = KernelKind::zero_padding, .operands = {}, .attributes = {}, .flops = 0};
  for (const Interval& gap : padding_intervals(layout_of(*group.group, config_.mesh)))
    kernel.operands.push_back(operand("padding", Access::write,
                                      {.buffer = slot ? gradient_slot(unit) : *group.main_grad,
                                       .offset = gap.begin * size_of(dtype),
                                       .dtype = dtype,
                                       .shape = {gap.size()},
                                       .rank_strides = {}}));
  if (!kernel.operands.empty())
    e_.emit(StreamRole::compute, Phase::backward, state.id, state.name + ".zero_padding",
            std::move(kernel), group.group->id);
}

void MicrobatchSchedule::reduce(std::size_t unit, Position position) {
  const UnitState& state = state_.units[unit];
  const GroupState& group = state_.groups[*state.trainable];
  if (!state_.layout.shard_gradient && !position.last) return;
  e_.record(StreamRole::compute, Phase::backward, "grad_ready." + state.name);
  e_.wait(StreamRole::reduce_scatter, Phase::reduce, "grad_ready." + state.name);
  if (state_.layout.shard_gradient) {
    reduce_to_shard(state, group, position);
    held_[unit] = false;
    carry_.reducing.push_back(unit);
  } else if (state_.layout.reduce) {
    reduce_whole(state, group);
  }
  if (position.last) finish_gradient(state, group);
}

/// optim_grads and optim_grads_params: the slot is reduced into the rank's own slice of itself,
/// which then begins the main gradient or is added to it.
void MicrobatchSchedule::reduce_to_shard(const UnitState& unit, const GroupState& group,
                                         Position position) {
  const BufferId slot = gradient_slot(unit.id.value);
  const std::int64_t elements = group.group->elements;
  const std::int64_t shard = elements / config_.mesh.size(Axis::dp_shard);
  const DType wire = config_.reduce_dtype;
  const Region whole{
      .buffer = slot, .offset = 0, .dtype = wire, .shape = {elements}, .rank_strides = {}};
  const Region own{.buffer = slot,
                   .offset = 0,
                   .dtype = wire,
                   .shape = {shard},
                   .rank_strides = {{.axis = Axis::dp_shard, .bytes = shard * size_of(wire)}}};
  const Region main{.buffer = *group.main_grad,
                    .offset = 0,
                    .dtype = config_.grad_dtype,
                    .shape = {shard},
                    .rank_strides = {}};
  e_.emit(StreamRole::reduce_scatter, Phase::reduce, unit.id, unit.name + ".reduce_scatter",
          Collective{.kind = CollectiveKind::reduce_scatter,
                     .communicator = e_.communicator("reduce_scatter"),
                     .reduction = Reduction::sum,
                     .count = shard,
                     .dtype = wire,
                     .input = operand("input", Access::read, whole),
                     .output = operand("output", Access::write, own)},
          group.group->id);
  Kernel accumulate{
      .kind = KernelKind::accumulate,
      .operands = {operand("input", Access::read, own),
                   operand("output", position.first ? Access::write : Access::read_write, main)},
      .attributes = {{"beta", position.first ? 0 : 1}},
      .flops = 0};
  e_.emit(StreamRole::reduce_scatter, Phase::reduce, unit.id, unit.name + ".accumulate",
          std::move(accumulate), group.group->id);
  e_.release(StreamRole::reduce_scatter, Phase::reduce, slot);
  e_.record(StreamRole::reduce_scatter, Phase::reduce, "reduced." + unit.name);
}

/// no_shard and optim: the summed main gradient is reduced once, in place. A wire of another dtype
/// goes through a buffer of its own.
void MicrobatchSchedule::reduce_whole(const UnitState& unit, const GroupState& group) {
  const bool scatter = state_.layout.shard_optimizer;
  const std::int64_t elements = group.group->elements;
  const std::int64_t shard = elements / config_.mesh.size(Axis::dp_shard);
  const Region main{.buffer = *group.main_grad,
                    .offset = 0,
                    .dtype = config_.grad_dtype,
                    .shape = {elements},
                    .rank_strides = {}};
  const bool cast = config_.reduce_dtype != config_.grad_dtype;
  Region wire = main;
  const auto emit_cast = [&](const Region& from, const Region& to, const char* name) {
    e_.emit(StreamRole::reduce_scatter, Phase::reduce, unit.id, unit.name + name,
            Kernel{.kind = KernelKind::cast,
                   .operands = {operand("input", Access::read, from),
                                operand("output", Access::write, to)},
                   .attributes = {{"beta", 0}},
                   .flops = 0},
            group.group->id);
  };
  if (cast) {
    wire.dtype = config_.reduce_dtype;
    wire.buffer =
        e_.buffer(unit.name + ".grad_wire", full_gradient(unit, *group.group, wire.dtype));
    e_.acquire(StreamRole::reduce_scatter, Phase::reduce, wire.buffer);
    emit_cast(main, wire, ".grad.to_wire");
  }
  const auto own = [&](Region region) {
    if (!scatter) return region;
    region.shape = {shard};
    region.rank_strides = {{.axis = Axis::dp_shard, .bytes = shard * size_of(region.dtype)}};
    return region;
  };
  e_.emit(StreamRole::reduce_scatter, Phase::reduce, unit.id,
          unit.name + (scatter ? ".reduce_scatter" : ".all_reduce"),
          Collective{.kind = scatter ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
                     .communicator = e_.communicator("reduce_scatter"),
                     .reduction = Reduction::sum,
                     .count = scatter ? shard : elements,
                     .dtype = wire.dtype,
                     .input = operand("input", Access::read, wire),
                     .output = operand("output", Access::write, own(wire))},
          group.group->id);
  if (cast) {
    emit_cast(own(wire), own(main), ".grad.from_wire");
    e_.release(StreamRole::reduce_scatter, Phase::reduce, wire.buffer);
  }
}

/// Last microbatch: the outer axis once, then this rank's share of the gradient norm.
void MicrobatchSchedule::finish_gradient(const UnitState& unit, const GroupState& group) {
  StreamRole stream = StreamRole::reduce_scatter;
  if (state_.layout.outer) {
    e_.record(stream, Phase::reduce, "shard_ready." + unit.name);
    stream = StreamRole::outer;
    e_.wait(stream, Phase::reduce, "shard_ready." + unit.name);
    const Region own = state_.gradient_slice(group);
    Region whole = own;
    if (state_.layout.outer_shard) {
      std::erase_if(whole.rank_strides,
                    [](const RankStride& stride) { return stride.axis == Axis::dp_outer; });
      whole.shape[0] *= config_.mesh.size(Axis::dp_outer);
    }
    e_.emit(stream, Phase::reduce, unit.id,
            unit.name + (state_.layout.outer_shard ? ".outer_reduce_scatter" : ".outer_all_reduce"),
            Collective{.kind = state_.layout.outer_shard ? CollectiveKind::reduce_scatter
                                                         : CollectiveKind::all_reduce,
                       .communicator = e_.communicator("outer"),
                       .reduction = Reduction::sum,
                       .count = own.shape[0],
                       .dtype = config_.grad_dtype,
                       .input = operand("input", Access::read, whole),
                       .output = operand("output", Access::write, own)},
            group.group->id);
  }
  // Every strategy sums the same slices in the same order: one partial per group and rank.
  Region slice = state_.gradient_slice(group);
  if (!state_.layout.shard_optimizer && config_.mesh.size(Axis::dp_shard) > 1) {
    const std::int64_t shard = slice.shape[0] / config_.mesh.size(Axis::dp_shard);
    slice.shape = {shard};
    slice.rank_strides.push_back(
        {.axis = Axis::dp_shard, .bytes = shard * size_of(config_.grad_dtype)});
  }
  const Region partial{
      .buffer = state_.norm_partials,
      .offset = static_cast<std::int64_t>(group.norm_index) * size_of(state_.norm_dtype),
      .dtype = state_.norm_dtype,
      .shape = {1},
      .rank_strides = {}};
  // Always on this stream, so that no two of them have it at one time.
  const Region workspace{.buffer = state_.norm_workspace,
                         .offset = 0,
                         .dtype = DType::uint8,
                         .shape = {kSumWorkspaceBytes},
                         .rank_strides = {}};
  e_.emit(stream, Phase::reduce, unit.id, unit.name + ".norm_partial",
          Kernel{.kind = KernelKind::norm_partial,
                 .operands = {operand("input", Access::read, slice),
                              operand("output", Access::write, partial),
                              operand("workspace", Access::scratch, workspace)},
                 .attributes = {},
                 .flops = 0},
          group.group->id);
  // With clipping the update waits for the norm, which waits for every gradient.
  if (config_.clip.num == 0) e_.record(stream, Phase::reduce, "synced." + unit.name);
}

}  // namespace mfsdp::schedule
