#include "verify/checker/gathered_casts.hpp"

namespace mfsdp::checker {
namespace {

constexpr const char* kOfShard = "shard's ";

/// The weight that a shard is of, and its role.
struct Shard {
  Spot spot;
  Int unit = 0;
  std::string role{};
};

Shard shard_of(const StepState& state, const Op& op, const Operand& input) {
  const Spot spot = locate(state.view, input);
  const Group& group = state.view.groups.at(spot.group);
  if (spot.begin != 0 || spot.end != group.elements)
    refuse("{}: '{}' is not a shard of a weight, or the weight", op.place(), input.role);
  return {spot, group.unit, group.parameters.begin()->second.role};
}

}  // namespace

bool casts_shard(const StepState& state, const Op& op) {
  if (op.does != "amax" && op.does != "cast_scaled") return false;
  const Operand& input = operand(op, "input");
  const Spot spot = locate(state.view, input);
  return spot.group != kNone && state.view.groups[spot.group].fp8;
}

void cast_shard(StepState& state, const Op& op) {
  const Operand& input = operand(op, "input");
  const Shard shard = shard_of(state, op, input);
  if (input.shape != std::vector<Int>{1, input.elements} || op.attribute("rows") != 1 ||
      op.attribute("cols") != input.elements)
    refuse("{}: '{}' is not one row", op.place(), input.role);
  const std::string amax = "amax " + shard.role + " weight";
  const Int pass = pass_of_update(state.weights.updates_of(shard.unit, shard.role));
  const auto number_in = [&](const char* role) -> const Operand& {
    const Operand& one = operand(op, role);
    if (one.dtype != "fp32" || one.elements != 1) refuse("{}: '{}' is not fp32", op.place(), role);
    return one;
  };
  if (op.does == "amax") {
    state.forms(op, {{"input", "read"}, {"amax", "write"}}, {"beta", "cols", "rows"});
    if (op.attribute("beta") != 0) refuse("{}: keeps a magnitude of before", op.place());
    state.weights.read(op, input, shard.spot);
    state.values.make(op, number_in("amax"),
                      {(shard.spot.kind > 0 ? kOfShard : "") + amax, shard.unit, pass});
    return;
  }
  const Json& config = state.view.json.at("config");
  const bool rounds = config.at("main_dtype") != config.at("param_dtype");
  Names attributes{"cols", "rows"};
  if (rounds) attributes.insert("through_bf16");
  state.forms(op,
              {{"amax", "read"}, {"input", "read"}, {"output", "write"}, {"output_scale", "write"}},
              attributes);
  if (rounds && op.attribute("through_bf16") != 1)
    refuse("{}: does not round to the compute dtype first", op.place());
  if (state.values.whole(op, number_in("amax")) != Value{amax, shard.unit, pass})
    refuse("{}: 'amax' is not the largest magnitude of the weight", op.place());
  state.weights.cast(op, input, operand(op, "output"));
  state.values.make(op, number_in("output_scale"),
                    {"scale " + shard.role + " weight", shard.unit, pass});
}

bool has_shard_amaxes(StepState& state, const Operand& operand) {
  if (!state.view.homes[operand.buffer].kind.empty()) return false;
  const auto cells = state.values.look(operand);
  return !cells.empty() && cells[0].second.value.name.starts_with(kOfShard);
}

void find_largest(StepState& state, const Op& op) {
  const Operand& from = op.operands.at(0);
  const Operand& to = op.operands.at(1);
  if (op.does != "all_reduce" || op.body->value("reduction", "") != "max" || from.dtype != "fp32" ||
      from.buffer != to.buffer || from.offset != to.offset || from.elements != to.elements ||
      !to.dense)
    refuse("{}: expected the maximum of magnitudes, in place", op.place());
  const Names axes = state.view.communicator_of(op).at("axes");
  for (const Group& group : state.view.groups)
    for (Int cut = 0; group.fp8 && cut < std::ssize(group.cut); ++cut)
      if (!axes.contains(group.cut[static_cast<std::size_t>(cut)]))
        refuse("{}: not all ranks with a shard take part", op.place());
  const auto cells = state.values.look(from);
  const Int four = size_of("fp32");
  for (std::size_t i = 0; i < cells.size(); ++i) {
    const auto& [begin, cell] = cells[i];
    Value value = cell.value;
    const Int end = i + 1 < cells.size() ? cells[i + 1].first : times(from.elements, four);
    const std::string of_shard = kOfShard;
    if (!value.name.starts_with(of_shard) || end - begin != four || cell.base != begin)
      refuse("{}: reads {}, not magnitudes of shards", op.place(), value.name);
    value.name = value.name.substr(of_shard.size());
    const std::string role = value.name.substr(5, value.name.rfind(' ') - 5);  // "amax ROLE weight"
    if (value.pass != pass_of_update(state.weights.updates_of(value.owner, role)))
      refuse("{}: reads a magnitude of the weight before its update", op.place());
    Operand one = to;
    one.offset += begin;
    one.elements = 1;
    one.shape = {1};
    state.values.make(op, one, value);
  }
}

}  // namespace mfsdp::checker
