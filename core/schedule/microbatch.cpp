#include "core/schedule/microbatch.hpp"

#include <algorithm>

#include "core/plan/nf4.hpp"
#include "core/plan/transport.hpp"
#include "core/schedule/residency.hpp"

namespace mfsdp::schedule {
namespace {

bool contains(const std::vector<std::size_t>& units, std::size_t unit) {
  return std::ranges::find(units, unit) != units.end();
}

/// Buffers of the gathered units, ascending.
std::vector<BufferId> live_buffers(const MicrobatchSchedule::Carry& carry) {
  std::vector<BufferId> live;
  for (const auto* buffers : {&carry.weights, &carry.casts})
    for (const auto& buffer : *buffers)
      if (buffer) live.push_back(*buffer);
  std::ranges::sort(live);
  return live;
}

}  // namespace

std::string MicrobatchSchedule::event(const std::string& name) const {
  return train_ ? name : "eval." + name;
}

std::vector<std::vector<std::size_t>> MicrobatchSchedule::residents(bool next_follows) const {
  std::vector<std::size_t> kept;
  for (std::int64_t block = config_.model.layers - config_.keep_gathered;
       block < config_.model.layers; ++block)
    kept.push_back(unit_of(static_cast<std::size_t>(block) + 1));
  return resident_units(weight_uses_, static_cast<std::size_t>(config_.prefetch), next_follows,
                        kept);
}

void MicrobatchSchedule::emit(const std::string& segment, std::int64_t repeat, Position position) {
  make_tensors();
  fresh_waited_.clear();
  e_.begin_segment(segment, repeat, 1);
  e_.segment().live_in = live_buffers(carry_);
  emit_input();
  if (position.first) cast_weights();
  emit_uses(0, uses_.size(), position, !position.last);
  e_.segment().live_out = live_buffers(carry_);
}

void MicrobatchSchedule::emit_pass(PipelinePart part, Position position) {
  make_tensors();
  if (part == PipelinePart::forward) {
    fresh_waited_.clear();
    emit_uses(0, forward_uses_, {.first = true, .last = false}, false);
  } else if (part == PipelinePart::weight_gradients) {
    emit_uses(backward_uses_, uses_.size(), position, false);
  } else {
    emit_uses(forward_uses_, backward_uses_, position, false);
  }
}

/// Uses that run one after another. `next_follows`: the same ones follow in the next microbatch.
void MicrobatchSchedule::emit_uses(std::size_t begin, std::size_t end, Position position,
                                   bool next_follows) {
  gradient_begun_ = false;
  weight_uses_.clear();
  for (std::size_t u = begin; u < end; ++u)
    if (uses_[u].weights) weight_uses_.push_back(uses_[u].unit);
  resident_ = residents(next_follows);
  std::size_t weight_use = 0;
  for (std::size_t u = begin; u < end; ++u) {
    const Use& use = uses_[u];
    phase_ = steps_[use.begin].op->phase == Phase::forward ? Phase::forward : Phase::backward;
    if (!state_.stage.is_only() && use.weights && weight_use + 1 == weight_uses_.size())
      e_.record(StreamRole::compute, phase_, std::string(kLastUnit));
    if (use.weights) {
      change_residents(weight_use, position);
      await_weights(use.unit, position);
    }
    emit_use(u, position);
    if (use.weights) {
      if (state_.gathers(use.unit) && !contains(resident_[weight_use + 1], use.unit))
        e_.record(StreamRole::compute, phase_,
                  event("used." + e_.at(*carry_.weights[use.unit]).name));
      ++weight_use;
      if (weight_use == weight_uses_.size()) change_residents(weight_use, position);
    }
    const GradientSpan& span = gradients_[use.unit];
    if (train_ && span.first && span.last >= use.begin && span.last < use.end)
      reduce(use.unit, position);
  }
}

/// Tokens are copied from the host to a staging buffer and from there to the tokens of the
/// microbatch. The staging buffer is then free for the next microbatch, so that tokens of two
/// microbatches are in flight at fixed addresses.
void MicrobatchSchedule::emit_input() {
  const Region pinned{.buffer = state_.pinned_tokens,
                      .dtype = DType::int32,
                      .shape = {config_.token_rows(), config_.tokens_per_microbatch()}};
  Region staged = pinned;
  staged.buffer = state_.staged_tokens;
  Region tokens = pinned;
  tokens.buffer = state_.tokens;
  e_.wait(StreamRole::h2d, Phase::input, event("tokens_consumed"));
  e_.emit(StreamRole::h2d, Phase::input, std::nullopt, "tokens.h2d",
          Copy{.kind = CopyKind::h2d,
               .input = operand("input", Access::read, pinned),
               .output = operand("output", Access::write, staged)});
  e_.record(StreamRole::h2d, Phase::input, event("tokens_staged"));
  e_.wait(StreamRole::compute, Phase::input, event("tokens_staged"));
  if (!state_.stage.is_only()) e_.acquire(StreamRole::compute, Phase::input, state_.tokens);
  Kernel copy{.kind = KernelKind::token_copy,
              .operands = {operand("input", Access::read, staged),
                           operand("output", Access::write, tokens)}};
  e_.emit(StreamRole::compute, Phase::input, std::nullopt, "tokens.copy", std::move(copy));
  e_.record(StreamRole::compute, Phase::input, event("tokens_consumed"));
}

void MicrobatchSchedule::emit_use(std::size_t use, Position position) {
  for (std::size_t i = uses_[use].begin; i < uses_[use].end; ++i) {
    if (gradients_[uses_[use].unit].first == i) begin_gradient(uses_[use].unit, position);
    begin_step(i);
    emit_step(steps_[i], position);
    end_step(i);
  }
}

/// Collectives run in the compute stream, at their position in the recipe, or in their own stream
/// if find_exchanges() has found kernels that hide them.
void MicrobatchSchedule::emit_step(const Step& step, Position position) {
  const RecipeOp& op = *step.op;
  const UnitState& unit = state_.units[step.unit];
  OpBody body;
  if (const RecipeKernel* kernel = op.kernel())
    body = made_kernel(step, *kernel, position);
  else
    body = made_collective(step, std::get<RecipeCollective>(op.body));
  e_.emit(step.beside ? StreamRole::exchange : StreamRole::compute, op.phase, unit.id,
          unit.name + "." + op.name, std::move(body));
}

Kernel MicrobatchSchedule::made_kernel(const Step& step, const RecipeKernel& recipe,
                                       Position position) const {
  const RecipeOp& op = *step.op;
  Kernel kernel{
      .kind = recipe.kind, .operands = {}, .attributes = recipe.attributes, .flops = recipe.flops};
  // The first microbatch writes sums that outlive a microbatch, the others add to them.
  const bool whole_gradient =
      op.gradient_of && std::ranges::any_of(op.operands, [&](const RecipeOperand& operand) {
        return operand.source == Source::weight_grad &&
               !state_.find(step.unit, operand.parameter).group->route.shards_gradient();
      });
  const bool loss =
      recipe.kind == KernelKind::cross_entropy || recipe.kind == KernelKind::cross_entropy_loss;
  for (Attribute& attribute : kernel.attributes)
    if (attribute.name == "beta" && !position.first && (whole_gradient || loss))
      attribute.value = {.num = 1};
  const bool adds = kernel.attribute("beta") != 0;
  kernel.operands.reserve(op.operands.size());
  for (std::size_t i = 0; i < op.operands.size(); ++i)
    if (train_ || !op.operands[i].trains) kernel.operands.push_back(resolve(step, i, adds));
  return kernel;
}

Collective MicrobatchSchedule::made_collective(const Step& step,
                                               const RecipeCollective& recipe) const {
  const auto found = [&](std::string_view role) {
    const auto& operands = step.op->operands;
    const auto at = std::ranges::find(operands, role, &RecipeOperand::role);
    return resolve(step, static_cast<std::size_t>(at - operands.begin()), false);
  };
  Collective made{.kind = recipe.kind,
                  .communicator = e_.communicator(activations_over(recipe.axis)),
                  .reduction = recipe.reduction,
                  .count = recipe.count,
                  .dtype = {},
                  .input = found("input"),
                  .output = found("output")};
  made.dtype = made.input.dtype;
  return made;
}

Operand MicrobatchSchedule::resolve(const Step& step, std::size_t number, bool adds) const {
  const RecipeOperand& recipe = step.op->operands[number];
  Region region;
  Access access = recipe.access;
  switch (recipe.source) {
    case Source::tensor:
    case Source::previous:
    case Source::microbatch:
      region = {.buffer = step.tensors[number], .dtype = recipe.dtype, .shape = recipe.shape};
      break;
    case Source::global:
      region = {.buffer = state_.global(recipe.name), .dtype = recipe.dtype, .shape = recipe.shape};
      break;
    case Source::weight:
      region = is_fp8(recipe.dtype) ? cast_region(step.unit, recipe.parameter)
                                    : weight_region(step.unit, recipe.parameter);
      break;
    case Source::weight_scale:
      region = state_.scale_of(*state_.find(step.unit, recipe.parameter).group);
      break;
    case Source::weight_grad: region = gradient_region(step.unit, recipe.parameter); break;
  }
  if (recipe.adds) access = adds ? Access::read_write : Access::write;
  Operand made = operand(recipe.role, access, region);
  made.shape = recipe.shape;
  made.strides = recipe.strides;
  const auto blocks_before = static_cast<std::int64_t>(step.owner) - 1;
  made.offset += (recipe.offset + recipe.of_block * blocks_before) * size_of(made.dtype);
  return made;
}

Region MicrobatchSchedule::weight_region(std::size_t unit, ParameterRole role) const {
  const auto [group, parameter] = state_.find(unit, role);
  const std::int64_t offset = parameter->offset * size_of(config_.param_dtype);
  const bool gathered = group->passes_through();
  return {.buffer = gathered ? *carry_.weights[unit] : group->model_weight,
          .offset = gathered ? group->full_offset + offset : offset,
          .dtype = config_.param_dtype};
}

Region MicrobatchSchedule::gradient_region(std::size_t unit, ParameterRole role) const {
  const auto [group, parameter] = state_.find(unit, role);
  const BufferId buffer = gradient_buffer(*group);
  const DType dtype = e_.at(buffer).dtype;
  return {.buffer = buffer, .offset = parameter->offset * size_of(dtype), .dtype = dtype};
}

BufferId MicrobatchSchedule::gathered_buffer(std::size_t unit, std::size_t weight_use) const {
  // The ordinal of the use that the gather is for, among the unit's uses in a microbatch.
  std::size_t needed = weight_use;
  while (weight_uses_[needed % weight_uses_.size()] != unit) ++needed;
  needed %= weight_uses_.size();
  const auto ordinal = std::count(weight_uses_.begin(),
                                  weight_uses_.begin() + static_cast<std::ptrdiff_t>(needed), unit);
  const UnitState& state = state_.units[unit];
  BufferForm form{.category = Category::unsharded_weight,
                  .dtype = config_.param_dtype,
                  .elements = state.weight_bytes / size_of(config_.param_dtype),
                  .pool = PoolRole::unsharded_weights,
                  .unit = state.id,
                  .holds = Contents{.kind = ContentKind::parameter},
                  .slot_class = "weights"};
  for (const std::size_t g : state.groups)
    if (state_.groups[g].passes_through())
      form.holds->groups.push_back(
          {.group = state_.groups[g].group->id, .offset = state_.groups[g].full_offset});
  return e_.buffer(state.name + ".weights." + std::to_string(ordinal), form);
}

/// Gathers and releases units until the resident ones are those of use `weight_use` (or of the end
/// of the microbatch).
void MicrobatchSchedule::change_residents(std::size_t weight_use, Position position) {
  const auto& wanted = resident_[weight_use];
  for (std::size_t unit = 0; unit < carry_.weights.size(); ++unit) {
    if (!carry_.weights[unit] || contains(wanted, unit)) continue;
    const BufferId buffer = *carry_.weights[unit];
    e_.wait(StreamRole::all_gather, phase_, event("used." + e_.at(buffer).name));
    e_.release(StreamRole::all_gather, phase_, buffer);
    carry_.weights[unit].reset();
    if (carry_.casts[unit]) e_.release(StreamRole::all_gather, phase_, *carry_.casts[unit]);
    carry_.casts[unit].reset();
  }
  for (const std::size_t unit : wanted)
    if (!carry_.weights[unit] && state_.gathers(unit)) gather(unit, weight_use, position);
}

void MicrobatchSchedule::gather(std::size_t unit, std::size_t weight_use, Position position) {
  const UnitState& state = state_.units[unit];
  const BufferId buffer = gathered_buffer(unit, weight_use);
  // After the first `used` event of a step the updates of all units are known to be done. When that
  // comes depends on prefetch, clipping and frozen groups, so each gather waits for the update of its
  // own unit. A redundant wait costs the host one call, a step ahead of the device.
  if (train_ && position.first && !state.trainable.empty() && fresh_waited_.insert(unit).second)
    e_.wait(StreamRole::all_gather, phase_, "fresh." + state.name);
  e_.acquire(StreamRole::all_gather, phase_, buffer);
  if (state.cast_bytes > 0) {
    if (position.first) e_.wait(StreamRole::all_gather, phase_, event("cast." + state.name));
    carry_.casts[unit] = gathered_casts(unit, buffer);
    e_.acquire(StreamRole::all_gather, phase_, *carry_.casts[unit]);
  }
  const std::optional<BufferId> stored = stored_buffer(unit, buffer);
  if (stored) e_.acquire(StreamRole::all_gather, phase_, *stored);
  std::vector<const AxisTraffic*> ways;  // groups over the same axis are one launch
  for (const std::size_t g : state.groups)
    if (const auto& way = state_.groups[g].route.gather;
        state_.groups[g].is_gathered_for_use() && std::ranges::find(ways, way->on) == ways.end())
      ways.push_back(way->on);
  // Small ones first: collectives begin in the order of their launches, and those of activations
  // that are launched later would wait until the large ones before them have ended.
  std::ranges::stable_partition(ways, &AxisTraffic::of_whole);
  for (const AxisTraffic* way : ways) gather_along(*way, state, buffer, stored);
  dequantise(state, buffer, stored);
  if (stored) e_.release(StreamRole::all_gather, phase_, *stored);
  e_.record(StreamRole::all_gather, phase_, event("gathered." + e_.at(buffer).name));
  carry_.weights[unit] = buffer;
  carry_.not_waited_for.insert(unit);
}

void MicrobatchSchedule::gather_along(const AxisTraffic& on, const UnitState& unit, BufferId buffer,
                                      std::optional<BufferId> stored) {
  std::vector<const GroupState*> groups;
  for (const std::size_t g : unit.groups)
    if (const auto& way = state_.groups[g].route.gather;
        state_.groups[g].is_gathered_for_use() && way->on == &on)
      groups.push_back(&state_.groups[g]);
  const CommunicatorId communicator = e_.communicator(on.gather_communicator);
  // Collectives on registered memory must not be grouped: NCCL before 2.28.7 corrupts them.
  const bool several = groups.size() > 1 && !traits_of(config_.gather).uses_windows;
  const auto bracket = [&](OpBody body, const char* name) {
    if (several)
      e_.emit(StreamRole::all_gather, phase_, unit.id, unit.name + name, std::move(body));
  };
  bracket(GroupBegin{.communicator = communicator}, ".all_gather.begin");
  for (const GroupState* state : groups) {
    const Group& group = *state->group;
    const std::int64_t shard = group.elements / state->route.gather->ranks;
    const bool quantised = group.quantised;
    const DType dtype = quantised   ? DType::uint8
                        : group.fp8 ? DType::fp8_e4m3
                                    : config_.param_dtype;
    const std::int64_t count = quantised ? nf4_bytes(shard) : shard;
    const Region input{.buffer = group.fp8 ? *state->casts : state->model_weight,
                       .offset = 0,
                       .dtype = dtype,
                       .shape = {count}};
    const Region output{.buffer = quantised   ? *stored
                                  : group.fp8 ? *carry_.casts[unit.id.value]
                                              : buffer,
                        .offset = quantised ? 0 : state->full_offset,
                        .dtype = dtype,
                        .shape = {quantised ? nf4_bytes(group.elements) : group.elements}};
    e_.emit(StreamRole::all_gather, phase_, unit.id,
            unit.name + (quantised ? ".base" : suffix_of(group, config_.mesh)) + ".all_gather",
            Collective{.kind = CollectiveKind::all_gather,
                       .communicator = communicator,
                       .reduction = Reduction::none,
                       .count = count,
                       .dtype = dtype,
                       .input = operand("input", Access::read, input),
                       .output = operand("output", Access::write, output)},
            group.id);
  }
  bracket(GroupEnd{.communicator = communicator}, ".all_gather.end");
}

std::optional<BufferId> MicrobatchSchedule::stored_buffer(std::size_t unit, BufferId buffer) const {
  for (const std::size_t g : state_.units[unit].groups) {
    const GroupState& state = state_.groups[g];
    if (!state.group->quantised || !state.route.gather) continue;
    return e_.buffer(
        e_.at(buffer).name + ".stored",
        {.category = Category::unsharded_weight,
         .dtype = DType::uint8,
         .elements = nf4_bytes(state.group->elements),
         .pool = PoolRole::unsharded_weights,
         .unit = state_.units[unit].id,
         .holds = Contents{.kind = ContentKind::parameter, .groups = {{.group = state.group->id}}},
         .slot_class = "stored"});
  }
  return std::nullopt;
}

void MicrobatchSchedule::dequantise(const UnitState& unit, BufferId buffer,
                                    std::optional<BufferId> stored) {
  for (const std::size_t g : unit.groups) {
    const GroupState& state = state_.groups[g];
    const Group& group = *state.group;
    if (!group.quantised) continue;
    Kernel kernel{.kind = KernelKind::dequantise,
                  .operands = {operand("input", Access::read,
                                       {.buffer = stored.value_or(state.model_weight),
                                        .dtype = DType::uint8,
                                        .shape = {nf4_bytes(group.elements)}}),
                               operand("mean", Access::read,
                                       {.buffer = *state.scale_means,
                                        .dtype = DType::fp32,
                                        .shape = {std::ssize(group.parameters)}}),
                               operand("output", Access::write,
                                       {.buffer = buffer,
                                        .offset = state.full_offset,
                                        .dtype = config_.param_dtype,
                                        .shape = {group.elements}})}};
    e_.emit(StreamRole::all_gather, phase_, unit.id, unit.name + ".dequantise", std::move(kernel),
            group.id);
  }
}

/// Compute waits for the weights of its own unit only: for a gather of this microbatch, or for the
/// refresh at the end of the last step.
void MicrobatchSchedule::await_weights(std::size_t unit, Position position) {
  const UnitState& state = state_.units[unit];
  if (position.first) await_casts(unit);
  if (state_.gathers(unit)) {
    if (carry_.not_waited_for.erase(unit) > 0)
      e_.wait(StreamRole::compute, phase_, event("gathered." + e_.at(*carry_.weights[unit]).name));
    return;
  }
  if (train_ && state_.refreshes(unit) && position.first && fresh_waited_.insert(unit).second)
    e_.wait(StreamRole::compute, phase_, "fresh." + state.name);
}

}  // namespace mfsdp::schedule
