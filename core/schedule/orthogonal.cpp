#include "core/schedule/orthogonal.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/plan/newton_schulz.hpp"

namespace mfsdp::schedule {
namespace {

const AxisTraffic* traffic_on(Axis axis) {
  const auto all = axis_traffic();
  return &*std::ranges::find(all, axis, &AxisTraffic::axis);
}

}  // namespace

OrthogonalRounds::OrthogonalRounds(Emitter& emitter, const State& state,
                                   const std::vector<std::size_t>& units, bool dealt)
    : e_(emitter), state_(state), config_(emitter.config()), of_experts_(dealt) {
  for (const std::size_t unit : units) {
    if (state.orthogonal_of(unit, dealt) == nullptr) continue;
    if (rounds_.empty()) {
      cut_ = flat_axes(group_of(unit).group->state);
      if (!cut_.empty()) dealt_ = traffic_on(cut_.front());
      if (cut_.size() > 1) inner_ = traffic_on(cut_.back());
      if (dealt_ != nullptr) ranks_ = config_.mesh.size(dealt_->axis);
    }
    const bool full = rounds_.empty() || std::ssize(rounds_.back().units) == ranks_;
    if (full || !are_alike(rounds_.back().units.front(), unit))
      rounds_.push_back({.units = {}, .slices = {}, .whole = {}});
    rounds_.back().units.push_back(unit);
  }
  for (std::size_t i = 0; i < rounds_.size(); ++i) make_buffers(rounds_[i], i);
  if (!rounds_.empty()) make_workspace();
}

std::string OrthogonalRounds::name_of(std::size_t round, std::string_view what) const {
  return fmt::format("muon.{}{}.{}", of_experts_ ? "experts." : "", round, what);
}

std::string OrthogonalRounds::slots(const char* what) const {
  return of_experts_ ? std::string("experts.") + what : what;
}

bool OrthogonalRounds::are_alike(std::size_t a, std::size_t b) const {
  const GroupState& first = group_of(a);
  const GroupState& second = group_of(b);
  return first.group->elements == second.group->elements && first.matrices == second.matrices;
}

void OrthogonalRounds::make_buffers(Round& round, std::size_t number) {
  const Group& first = *group_of(round.units.front()).group;
  const DType dtype = config_.direction_dtype();
  const std::int64_t slice = first.elements / ranks_;
  const auto make = [&](const char* name, std::int64_t elements, Contents holds) {
    return e_.buffer(name_of(number, name), {.category = Category::workspace,
                                             .dtype = dtype,
                                             .elements = elements,
                                             .pool = PoolRole::activations,
                                             .holds = std::move(holds),
                                             .slot_class = slots(name)});
  };
  Contents slices{.kind = ContentKind::direction};
  if (dealt_ != nullptr)
    slices.placement = {{.axis = dealt_->axis, .kind = PlacementKind::flat, .dim = {}}};
  Contents whole{.kind = ContentKind::direction};
  for (std::size_t i = 0; i < round.units.size(); ++i) {
    const GroupId group = group_of(round.units[i]).group->id;
    slices.groups.push_back(
        {.group = group,
         .offset = bytes_of(checked_mul(static_cast<std::int64_t>(i), slice), dtype).value});
    whole.groups.push_back({.group = group, .offset = 0});
  }
  round.slices = make("slices", checked_mul(slice, ranks_), std::move(slices));
  if (dealt_ == nullptr) {
    round.whole = round.slices;
    return;
  }
  whole.dealt = dealt_->axis;
  round.whole = make("whole", first.elements, std::move(whole));
}

/// One workspace for all matrices, which are orthogonalised one after the other.
void OrthogonalRounds::make_workspace() {
  std::int64_t bytes = 0;
  for (const Round& round : rounds_)
    for (const GroupMatrix& matrix : group_of(round.units.front()).matrices)
      bytes = std::max(bytes, newton_schulz_workspace_of(matrix.rows, matrix.cols,
                                                         size_of(config_.direction_dtype()))
                                  .bytes);
  const std::string name = of_experts_ ? "muon.experts.workspace" : "muon.workspace";
  workspace_ = e_.buffer(name, {.category = Category::workspace,
                                .dtype = DType::uint8,
                                .elements = bytes,
                                .pool = PoolRole::activations,
                                .slot_class = name});
}

Region OrthogonalRounds::place_of(const Round& round, std::size_t position,
                                  const std::vector<Axis>& axes) const {
  Region place =
      state_.slice(round.slices, config_.direction_dtype(), group_of(round.units[position]), axes);
  place.offset = e_.at(round.slices).holds->groups[position].offset;
  return place;
}

Region OrthogonalRounds::direction(std::size_t round, std::size_t unit) const {
  const auto& units = rounds_[round].units;
  const auto at = std::ranges::find(units, unit) - units.begin();
  return place_of(rounds_[round], static_cast<std::size_t>(at), cut_);
}

void OrthogonalRounds::begin(std::size_t number, const std::function<void(std::size_t)>& ready) {
  const Round& round = rounds_[number];
  e_.acquire(StreamRole::compute, Phase::optimizer, round.slices);
  if (dealt_ != nullptr) e_.acquire(StreamRole::compute, Phase::optimizer, round.whole);
  zero_rest(round, number);
  for (std::size_t i = 0; i < round.units.size(); ++i) {
    ready(round.units[i]);
    momentum(round, i);
  }
  if (dealt_ != nullptr) exchange(number, true);
}

/// Ranks without a block get zeros, whose Newton-Schulz result is zero.
void OrthogonalRounds::zero_rest(const Round& round, std::size_t number) {
  const std::int64_t blocks = std::ssize(round.units);
  if (blocks == ranks_) return;
  const DType dtype = config_.direction_dtype();
  const std::int64_t slice = group_of(round.units.front()).group->elements / ranks_;
  const Region rest{.buffer = round.slices,
                    .offset = bytes_of(checked_mul(blocks, slice), dtype).value,
                    .dtype = dtype,
                    .shape = {checked_mul(ranks_ - blocks, slice)}};
  e_.emit(StreamRole::compute, Phase::optimizer, std::nullopt, name_of(number, "zero_rest"),
          Kernel{.kind = KernelKind::zero_padding,
                 .operands = {operand("padding", Access::write, rest)}});
}

void OrthogonalRounds::momentum(const Round& round, std::size_t position) {
  const UnitState& unit = state_.units[round.units[position]];
  const GroupState& group = group_of(round.units[position]);
  const std::int64_t elements = state_.slice_elements(group);
  Kernel kernel{.kind = KernelKind::momentum,
                .operands = {operand("grad", Access::read, state_.gradient_slice(group))},
                .attributes = {{"elements", elements}}};
  state_.add_states(group, kernel);
  kernel.operands.push_back(operand("direction", Access::write, place_of(round, position, cut_)));
  state_.add_settings(kernel, true);
  e_.emit(StreamRole::compute, Phase::optimizer, unit.id,
          unit.name + (of_experts_ ? ".experts.momentum" : ".momentum"), std::move(kernel),
          group.group->id);
}

/// Slices that are sharded along a second axis are gathered along it, all blocks in one launch.
void OrthogonalRounds::gather_inner(const Round& round, std::size_t number) {
  const StreamRole stream = inner_->gather_stream;
  const CommunicatorId communicator = e_.communicator(inner_->gather_communicator);
  e_.wait(stream, Phase::optimizer, name_of(number, "momentum"));
  e_.emit(stream, Phase::optimizer, std::nullopt, name_of(number, "gather.begin"),
          GroupBegin{.communicator = communicator});
  for (std::size_t i = 0; i < round.units.size(); ++i) {
    const Region own = place_of(round, i, cut_);
    e_.emit(
        stream, Phase::optimizer, state_.units[round.units[i]].id,
        state_.units[round.units[i]].name + ".gather_direction",
        Collective{.kind = CollectiveKind::all_gather,
                   .communicator = communicator,
                   .reduction = Reduction::none,
                   .count = own.shape[0],
                   .dtype = own.dtype,
                   .input = operand("input", Access::read, own),
                   .output = operand("output", Access::write, place_of(round, i, {dealt_->axis}))},
        group_of(round.units[i]).group->id);
  }
  e_.emit(stream, Phase::optimizer, std::nullopt, name_of(number, "gather.end"),
          GroupEnd{.communicator = communicator});
  e_.record(stream, Phase::optimizer, name_of(number, "gathered"));
}

/// Input moves on the stream of reductions, results on that of gathers, like gradients and weights.
void OrthogonalRounds::exchange(std::size_t number, bool in) {
  const Round& round = rounds_[number];
  const StreamRole stream = in ? dealt_->reduce_stream : dealt_->gather_stream;
  const auto communicator = in ? dealt_->reduce_communicator : dealt_->gather_communicator;
  const std::string before = name_of(number, in ? "momentum" : "orthogonal");
  e_.record(StreamRole::compute, Phase::optimizer, before);
  if (in && inner_ != nullptr) {
    gather_inner(round, number);
    e_.wait(stream, Phase::optimizer, name_of(number, "gathered"));
  } else {
    e_.wait(stream, Phase::optimizer, before);
  }
  const auto all_of = [&](BufferId buffer) {
    const Buffer& of = e_.at(buffer);
    return Region{
        .buffer = buffer, .dtype = of.dtype, .shape = {of.size.value / size_of(of.dtype)}};
  };
  const Region slices = all_of(round.slices);
  const Region whole = all_of(round.whole);
  e_.emit(stream, Phase::optimizer, std::nullopt, name_of(number, in ? "deal" : "return"),
          Collective{.kind = CollectiveKind::all_to_all,
                     .communicator = e_.communicator(communicator),
                     .reduction = Reduction::none,
                     .count = slices.shape[0] / ranks_,
                     .dtype = slices.dtype,
                     .input = operand("input", Access::read, in ? slices : whole),
                     .output = operand("output", Access::write, in ? whole : slices)});
  e_.record(stream, Phase::optimizer, name_of(number, in ? "dealt" : "returned"));
}

void OrthogonalRounds::orthogonalise(std::size_t number) {
  const Round& round = rounds_[number];
  if (dealt_ != nullptr) e_.wait(StreamRole::compute, Phase::optimizer, name_of(number, "dealt"));
  if (number == 0) e_.acquire(StreamRole::compute, Phase::optimizer, workspace_);
  for (const GroupMatrix& matrix : group_of(round.units.front()).matrices)
    emit_matrix(round, number, matrix);
  if (number + 1 == rounds_.size()) e_.release(StreamRole::compute, Phase::optimizer, workspace_);
  if (dealt_ != nullptr) exchange(number, false);
}

void OrthogonalRounds::emit_matrix(const Round& round, std::size_t number,
                                   const GroupMatrix& matrix) {
  const DType dtype = config_.direction_dtype();
  const Region place{.buffer = round.whole,
                     .offset = bytes_of(matrix.offset, dtype).value,
                     .dtype = dtype,
                     .shape = {matrix.rows, matrix.cols}};
  const Region scratch{
      .buffer = workspace_,
      .dtype = DType::uint8,
      .shape = {newton_schulz_workspace_of(matrix.rows, matrix.cols, size_of(dtype)).bytes}};
  Kernel kernel{.kind = KernelKind::newton_schulz,
                .operands = {operand("matrix", Access::read_write, place),
                             operand("workspace", Access::scratch, scratch)},
                .attributes = {{"bytes", newton_schulz_bytes(matrix.rows, matrix.cols)},
                               {"cols", matrix.cols},
                               {"rows", matrix.rows}},
                .flops = newton_schulz_flops(matrix.rows, matrix.cols)};
  e_.emit(StreamRole::compute, Phase::optimizer, std::nullopt, name_of(number, matrix.name),
          std::move(kernel));
}

void OrthogonalRounds::await(std::size_t number) {
  if (dealt_ != nullptr)
    e_.wait(StreamRole::compute, Phase::optimizer, name_of(number, "returned"));
}

void OrthogonalRounds::end(std::size_t number) {
  const Round& round = rounds_[number];
  e_.release(StreamRole::compute, Phase::optimizer, round.slices);
  if (dealt_ != nullptr) e_.release(StreamRole::compute, Phase::optimizer, round.whole);
}

}  // namespace mfsdp::schedule
