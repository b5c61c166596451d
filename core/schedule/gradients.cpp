// From a unit's first weight gradient to its reduced main gradient.
#include <algorithm>

#include "core/plan/transport.hpp"
#include "core/plan/work.hpp"
#include "core/schedule/microbatch.hpp"
#include "core/shard/groups.hpp"

namespace mfsdp::schedule {
namespace {

/// A buffer for the full gradient of a group.
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

/// Receives this rank's slice where the slot cannot: registered memory is written at an offset that
/// is equal on all ranks. It holds the sum, or each rank's part of it.
BufferForm arriving(const UnitState& unit, const GroupState& group, const PlanConfig& config,
                    bool in_parts) {
  const std::vector<Axis>& axes = group.route.reduces.front().axes;
  Placement placement;
  for (const Axis axis : axes)
    placement.push_back({.axis = axis, .kind = PlacementKind::flat, .dim = {}});
  BufferForm form{.category = Category::main_grad,
                  .dtype = config.reduce_dtype,
                  .elements = group.group->elements / (in_parts ? 1 : ranks_on(axes, config.mesh)),
                  .pool = PoolRole::reduced_gradients,
                  .unit = unit.id,
                  .holds = Contents{.kind = ContentKind::gradient,
                                    .groups = {{.group = group.group->id, .offset = 0}},
                                    .placement = std::move(placement)},
                  .slot_class = in_parts ? "gradient_parts" : "gradient_sums"};
  if (in_parts) form.holds->dealt = axes.front();
  return form;
}

/// Of a stage with several chunks: the last reduction of any of them.
constexpr std::string_view kChunkReduced = "reduced";

}  // namespace

BufferId MicrobatchSchedule::gradient_slot(const GroupState& group) const {
  const UnitState& unit = state_.units[group.group->unit.value];
  return e_.buffer(group_name(unit, group) + ".grad",
                   full_gradient(unit, *group.group, config_.reduce_dtype));
}

BufferId MicrobatchSchedule::gradient_buffer(const GroupState& group) const {
  return group.route.shards_gradient() ? gradient_slot(group) : *group.main_grad;
}

std::string MicrobatchSchedule::group_name(const UnitState& unit, const GroupState& group) const {
  const std::string suffix = suffix_of(*group.group, config_.mesh);
  const auto first = std::ranges::find_if(unit.trainable, [&](std::size_t g) {
    return suffix_of(*state_.groups[g].group, config_.mesh) == suffix;
  });
  const std::string name = unit.name + suffix;
  return &group == &state_.groups[*first] ? name : name + ".vectors";
}

bool MicrobatchSchedule::is_tied(std::size_t unit) const {
  return unit == unit_of(0) && config_.model.tied_embeddings;
}

/// A tied unit has an additional slot. It is in use from the head to the embedding's backward, so
/// otherwise the blocks would have one slot less.
bool MicrobatchSchedule::is_filled_during(std::size_t unit, std::size_t other) const {
  const GradientSpan& span = gradients_[unit];
  const GradientSpan& beside = gradients_[other];
  return span.first && beside.first && span.first < beside.first && span.last > *beside.first;
}

/// Takes a slot before the unit's first weight gradient: compute waits for the oldest reductions
/// until fewer than grad_slots are in use.
void MicrobatchSchedule::begin_gradient(std::size_t unit, Position position) {
  const auto groups = state_.trainable_of(unit);
  if (state_.shards_gradient(unit)) {
    // The first slot of a microbatch also waits for all reductions of the one before, which had a
    // whole forward to finish. So the gradients of two microbatches never need memory at once.
    const bool drains = !gradient_begun_;
    gradient_begun_ = true;
    std::optional<std::size_t> awaited;
    auto most = static_cast<std::size_t>(config_.grad_slots) - 1;
    for (std::size_t other = 0; other < gradients_.size(); ++other)
      if (!is_tied(other) && is_filled_during(other, unit)) --most;
    if (drains) most = 0;
    while (carry_.reducing.size() > most) {
      awaited = carry_.reducing.front();
      carry_.reducing.pop_front();
    }
    // Reductions finish in stream order: waiting for one includes all before it.
    // Another chunk of the stage may have been the last to reduce.
    if (drains && state_.stage.chunks.size() > 1)
      e_.wait(StreamRole::compute, Phase::backward, std::string(kChunkReduced));
    else if (awaited)
      e_.wait(StreamRole::compute, Phase::backward, "reduced." + state_.units[*awaited].name);
    for (const GroupState* group : groups)
      if (group->route.shards_gradient())
        e_.acquire(StreamRole::compute, Phase::backward, gradient_slot(*group));
  }
  for (const GroupState* group : groups)
    if (group->route.shards_gradient() || position.first) zero_padding(state_.units[unit], *group);
}

/// Zeroes the layout's gaps, which norm and update read but no weight gradient writes.
void MicrobatchSchedule::zero_padding(const UnitState& unit, const GroupState& group) {
  const BufferId buffer = gradient_buffer(group);
  const DType dtype = e_.at(buffer).dtype;
  Kernel kernel{.kind = KernelKind::zero_padding, .operands = {}, .attributes = {}, .flops = 0};
  for (const Interval& gap : padding_intervals(layout_of(*group.group, config_.mesh)))
    kernel.operands.push_back(operand("padding", Access::write,
                                      {.buffer = buffer,
                                       .offset = gap.begin * size_of(dtype),
                                       .dtype = dtype,
                                       .shape = {gap.size()}}));
  if (!kernel.operands.empty())
    e_.emit(StreamRole::compute, Phase::backward, unit.id,
            group_name(unit, group) + ".zero_padding", std::move(kernel), group.group->id);
}

void MicrobatchSchedule::reduce(std::size_t unit, Position position) {
  const UnitState& state = state_.units[unit];
  auto groups = state_.trainable_of(unit);
  // As gathers: small ones first.
  std::ranges::stable_partition(groups, [](const GroupState* group) {
    return !group->route.reduces.empty() && group->route.reduces.front().on->of_whole;
  });
  const bool shards = state_.shards_gradient(unit);
  if (!shards && !position.last) return;
  e_.record(StreamRole::compute, Phase::backward, "grad_ready." + state.name);
  e_.wait(StreamRole::reduce_scatter, Phase::reduce, "grad_ready." + state.name);
  for (const GroupState* group : groups) {
    const Route& route = group->route;
    if (route.shards_gradient())
      reduce_to_shard(state, *group, position);
    else if (position.last && !route.reduces.empty() && route.reduces.front().on->wire)
      reduce_whole(state, *group);
  }
  if (shards) {
    e_.record(StreamRole::reduce_scatter, Phase::reduce, "reduced." + state.name);
    if (state_.stage.chunks.size() > 1)
      e_.record(StreamRole::reduce_scatter, Phase::reduce, std::string(kChunkReduced));
    carry_.reducing.push_back(unit);
  }
  if (position.last) finish_gradients(state, groups);
}

/// optim_grads and optim_grads_params with copy engines, which cannot add: each rank receives its
/// slice of all ranks' slots, and a kernel sums these in rank order, rounded once.
void MicrobatchSchedule::exchange_and_sum(const UnitState& unit, const GroupState& group,
                                          Position position) {
  const Reduce& way = group.route.reduces.front();
  const AxisTraffic& on = *way.on;
  const BufferId slot = gradient_slot(group);
  const std::string name = group_name(unit, group);
  const DType wire = config_.reduce_dtype;
  const std::int64_t ranks = ranks_on(way.axes, config_.mesh);
  const BufferId parts = e_.buffer(name + ".grad_parts", arriving(unit, group, config_, true));
  Region dealt{.buffer = parts, .offset = 0, .dtype = wire, .shape = {group.group->elements}};
  const Region main = state_.slice(*group.main_grad, config_.grad_dtype, group, way.axes);
  const std::int64_t count = main.shape[0];
  e_.acquire(on.reduce_stream, Phase::reduce, parts);
  e_.emit(on.reduce_stream, Phase::reduce, unit.id, name + ".all_to_all",
          Collective{.kind = CollectiveKind::all_to_all,
                     .communicator = e_.communicator(on.reduce_communicator),
                     .reduction = Reduction::none,
                     .count = count,
                     .dtype = wire,
                     .input = operand("input", Access::read, state_.slice(slot, wire, group, {})),
                     .output = operand("output", Access::write, dealt)},
          group.group->id);
  e_.release(on.reduce_stream, Phase::reduce, slot);
  dealt.shape = {ranks, count};
  Kernel sum{
      .kind = KernelKind::sum_ranks,
      .operands = {operand("input", Access::read, dealt),
                   operand("output", position.first ? Access::write : Access::read_write, main)},
      .attributes = {{"beta", position.first ? 0 : 1}, {"count", count}, {"ranks", ranks}}};
  e_.emit(on.reduce_stream, Phase::reduce, unit.id, name + ".sum_ranks", std::move(sum),
          group.group->id);
  e_.release(on.reduce_stream, Phase::reduce, parts);
}

/// optim_grads and optim_grads_params: the first sum is reduced directly into the main gradient if
/// that has the reduction dtype. Otherwise the slot is reduced into the rank's own slice of it, or
/// into registered memory, which is then added or converted.
void MicrobatchSchedule::reduce_to_shard(const UnitState& unit, const GroupState& group,
                                         Position position) {
  if (!traits_of(e_.reduces_by()).adds) return exchange_and_sum(unit, group, position);
  const Reduce& way = group.route.reduces.front();
  const AxisTraffic& on = *way.on;
  const BufferId slot = gradient_slot(group);
  const std::string name = group_name(unit, group);
  const DType wire = config_.reduce_dtype;
  const bool straight = position.first && wire == config_.grad_dtype;
  const bool apart = traits_of(e_.reduces_by()).uses_windows && !straight;
  const BufferId sum =
      apart ? e_.buffer(name + ".grad_sum", arriving(unit, group, config_, false)) : slot;
  const Region whole = state_.slice(slot, wire, group, {});
  const Region own = state_.slice(sum, wire, group, way.axes);
  const Region main = state_.slice(*group.main_grad, config_.grad_dtype, group, way.axes);
  if (apart) e_.acquire(on.reduce_stream, Phase::reduce, sum);
  e_.emit(on.reduce_stream, Phase::reduce, unit.id, name + ".reduce_scatter",
          Collective{.kind = CollectiveKind::reduce_scatter,
                     .communicator = e_.communicator(on.reduce_communicator),
                     .reduction = Reduction::sum,
                     .count = own.shape[0],
                     .dtype = wire,
                     .input = operand("input", Access::read, whole),
                     .output = operand("output", Access::write, straight ? main : own)},
          group.group->id);
  if (!straight) {
    Kernel accumulate{
        .kind = KernelKind::accumulate,
        .operands = {operand("input", Access::read, own),
                     operand("output", position.first ? Access::write : Access::read_write, main)},
        .attributes = {{"beta", position.first ? 0 : 1}}};
    e_.emit(on.reduce_stream, Phase::reduce, unit.id, name + ".accumulate", std::move(accumulate),
            group.group->id);
  }
  if (apart) e_.release(on.reduce_stream, Phase::reduce, sum);
  e_.release(on.reduce_stream, Phase::reduce, slot);
}

/// no_shard and optim: the summed main gradient is reduced once, in place. Another reduction dtype
/// needs a second buffer.
void MicrobatchSchedule::reduce_whole(const UnitState& unit, const GroupState& group) {
  const Reduce& way = group.route.reduces.front();
  const AxisTraffic& on = *way.on;
  const std::string name = group_name(unit, group);
  const bool cast = config_.reduce_dtype != config_.grad_dtype;
  BufferId crossing = *group.main_grad;
  const auto whole = [&](BufferId buffer, DType dtype) {
    return state_.slice(buffer, dtype, group, {});
  };
  const auto result = [&](BufferId buffer, DType dtype) {
    return way.scatters ? state_.slice(buffer, dtype, group, way.axes) : whole(buffer, dtype);
  };
  const auto emit_cast = [&](const Region& from, const Region& to, const char* action) {
    e_.emit(on.reduce_stream, Phase::reduce, unit.id, name + action,
            Kernel{.kind = KernelKind::cast,
                   .operands = {operand("input", Access::read, from),
                                operand("output", Access::write, to)},
                   .attributes = {{"beta", 0}}},
            group.group->id);
  };
  const DType wire = config_.reduce_dtype;
  if (cast) {
    crossing = e_.buffer(name + ".grad_wire", full_gradient(unit, *group.group, wire));
    e_.acquire(on.reduce_stream, Phase::reduce, crossing);
    emit_cast(whole(*group.main_grad, config_.grad_dtype), whole(crossing, wire), ".grad.to_wire");
  }
  const Region sum = result(crossing, wire);
  e_.emit(
      on.reduce_stream, Phase::reduce, unit.id,
      name + (way.scatters ? ".reduce_scatter" : ".all_reduce"),
      Collective{.kind = way.scatters ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
                 .communicator = e_.communicator(on.reduce_communicator),
                 .reduction = Reduction::sum,
                 .count = sum.shape[0],
                 .dtype = wire,
                 .input = operand("input", Access::read, whole(crossing, wire)),
                 .output = operand("output", Access::write, sum)},
      group.group->id);
  if (cast) {
    emit_cast(sum, result(*group.main_grad, config_.grad_dtype), ".grad.from_wire");
    e_.release(on.reduce_stream, Phase::reduce, crossing);
  }
}

/// After the last microbatch: reduces the main gradient over its axis, once, then computes this
/// rank's part of the gradient norm. Expert-parallel groups have another axis.
void MicrobatchSchedule::finish_gradients(const UnitState& unit,
                                          const std::vector<const GroupState*>& groups) {
  const StreamRole stream = state_.norm_stream();
  if (stream != StreamRole::reduce_scatter) {
    e_.record(StreamRole::reduce_scatter, Phase::reduce, "shard_ready." + unit.name);
    e_.wait(stream, Phase::reduce, "shard_ready." + unit.name);
  }
  const auto outer = [](const GroupState* group) {
    const auto way = std::ranges::find_if(group->route.reduces,
                                          [](const Reduce& reduce) { return !reduce.on->wire; });
    return way == group->route.reduces.end() ? nullptr : way->on;
  };
  // Collectives of activations begin after those that were launched before. With ranks of tp a unit
  // has several groups over the same axis: as one launch, none of them waits for the one before.
  const bool joins = config_.mesh.size(Axis::tp) > 1;
  for (std::size_t first = 0; first < groups.size();) {
    std::size_t end = first + 1;
    const AxisTraffic* on = outer(groups[first]);
    while (joins && on != nullptr && end < groups.size() && outer(groups[end]) == on) ++end;
    const bool several = end - first > 1;
    const auto bracket = [&](OpBody body, const char* name) {
      if (several)
        e_.emit(on->reduce_stream, Phase::reduce, unit.id, unit.name + name, std::move(body));
    };
    const CommunicatorId communicator =
        on == nullptr ? CommunicatorId() : e_.communicator(on->reduce_communicator);
    bracket(GroupBegin{.communicator = communicator}, ".outer.begin");
    for (; first < end; ++first) reduce_over_groups(unit, *groups[first]);
    bracket(GroupEnd{.communicator = communicator}, ".outer.end");
  }
  for (const GroupState* group : groups) norm_partial(unit, *group, stream);
  // An update that waits for the norm waits for every gradient.
  if (!config_.updates_by_norm()) e_.record(stream, Phase::reduce, "synced." + unit.name);
}

/// Reduces the partial sums that earlier reductions left in groups of ranks over the remaining
/// axis.
void MicrobatchSchedule::reduce_over_groups(const UnitState& unit, const GroupState& group) {
  std::vector<Axis> cut;
  for (const Reduce& way : group.route.reduces) {
    const std::vector<Axis> before = cut;
    if (way.scatters) cut.insert(cut.end(), way.axes.begin(), way.axes.end());
    if (way.on->wire) continue;
    const Region whole = state_.slice(*group.main_grad, config_.grad_dtype, group, before);
    const Region own = state_.slice(*group.main_grad, config_.grad_dtype, group, cut);
    e_.emit(
        way.on->reduce_stream, Phase::reduce, unit.id,
        group_name(unit, group) + (way.scatters ? ".outer_reduce_scatter" : ".outer_all_reduce"),
        Collective{
            .kind = way.scatters ? CollectiveKind::reduce_scatter : CollectiveKind::all_reduce,
            .communicator = e_.communicator(way.on->reduce_communicator),
            .reduction = Reduction::sum,
            .count = own.shape[0],
            .dtype = config_.grad_dtype,
            .input = operand("input", Access::read, whole),
            .output = operand("output", Access::write, own)},
        group.group->id);
  }
}

/// One partial sum per group and rank: every strategy sums the same slices in the same order.
void MicrobatchSchedule::norm_partial(const UnitState& unit, const GroupState& group,
                                      StreamRole stream) {
  const Region slice = state_.slice(*group.main_grad, config_.grad_dtype, group, group.group->cut);
  const Region partial{
      .buffer = state_.norm_partials,
      .offset = static_cast<std::int64_t>(group.norm_index) * size_of(state_.norm_dtype),
      .dtype = state_.norm_dtype,
      .shape = {1}};
  // Always on this stream, so that no two of them use it at once.
  const Region workspace{
      .buffer = state_.norm_workspace, .dtype = DType::uint8, .shape = {kSumWorkspaceBytes}};
  e_.emit(stream, Phase::reduce, unit.id, group_name(unit, group) + ".norm_partial",
          Kernel{.kind = KernelKind::norm_partial,
                 .operands = {operand("input", Access::read, slice),
                              operand("output", Access::write, partial),
                              operand("workspace", Access::scratch, workspace)}},
          group.group->id);
}

}  // namespace mfsdp::schedule
