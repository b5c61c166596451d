#include "verify/checker/weights.hpp"

namespace mfsdp::checker {
namespace {

/// How an update accesses an operand of this role.
std::string access_of(const std::string& role, bool main_weights) {
  if (role == "grad" || role == "direction") return "read";
  return role == "weight" && main_weights ? "write" : "read_write";
}

}  // namespace

Weights::Weights(const PlanView& view, const Model& model)
    : view_(view), model_(model), updates_(view.groups.size()), before_(view.groups.size()) {
  for (Index b = 0; b < view.homes.size(); ++b) {
    acquire(b);
    if (!view.json.at("buffers")[b].value("persistent", false)) continue;
    for (const auto& [group, at] : view.homes[b].groups)
      if (view.homes[b].kind == "parameter") held_[{b, group}].at(0) = {0, view.homes[b].cuts};
  }
}

void Weights::begin_plan() {
  for (Index b = 0; b < view_.homes.size(); ++b)
    if (!view_.json.at("buffers")[b].value("persistent", false) ||
        view_.homes[b].kind == "cast_parameter")
      acquire(b);
}

void Weights::acquire(Index buffer) {
  if (!holds_weights(view_.homes[buffer])) return;
  for (const auto& [group, at] : view_.homes[buffer].groups)
    held_[{buffer, group}] = {{0, {}}, {kMost, {}}};
}

std::map<Int, Weights::Held>& Weights::held_in(const Op& op, const Operand& operand,
                                               const Spot& spot) {
  const auto held = held_.find({operand.buffer, spot.group});
  if (held == held_.end() || spot.begin >= spot.end)
    refuse("{}: operand '{}' is not a shard of weights", op.place(), operand.role);
  return held->second;
}

void Weights::read(const Op& op, const Operand& operand, const Spot& spot) {
  for (const Held* held : cut_out(held_in(op, operand, spot), spot.begin, spot.end))
    if (held->version != updates_[spot.group] || held->kind > spot.kind)
      refuse("{}: '{}' is not the weights of this step", op.place(), operand.role);
}

void Weights::gather(const Op& op) {
  const Operand& part = op.operands.at(0);
  const Operand& whole = op.operands.at(1);
  const Spot from = locate(view_, part);
  const Spot to = locate(view_, whole);
  const bool slices = from.group != kNone && from.group == to.group && from.kind >= to.kind &&
                      from.begin == to.begin && from.end == to.end &&
                      view_.homes[part.buffer].kind == view_.homes[whole.buffer].kind;
  Names axes = view_.communicator_of(op).at("axes");
  std::erase_if(axes, [&](const std::string& axis) { return !view_.mesh.contains(axis); });
  Axes cut;
  for (Int kind = to.kind; slices && kind < from.kind; ++kind)
    cut.push_back(view_.groups[from.group].cut[static_cast<std::size_t>(kind)]);
  if (!slices || axes != Names(cut.begin(), cut.end()) || !view_.counts_ranks(cut))
    refuse("{}: does not gather shards of a group", op.place());
  read(op, part, from);
  for (Held* held : cut_out(held_in(op, whole, to), to.begin, to.end))
    *held = {updates_[to.group], to.kind};
}

void Weights::cast(const Op& op, const Operand& input, const Operand& output) {
  const Spot from = locate(view_, input);
  if (from.group == kNone || locate(view_, output) != from ||
      view_.homes[output.buffer].kind != "cast_parameter")
    refuse("{}: does not cast a shard to where its casts are", op.place());
  read(op, input, from);
  for (Held* held : cut_out(held_in(op, output, from), from.begin, from.end))
    *held = {updates_[from.group], from.kind};
}

void Weights::update(const Op& op) {
  auto made_of = std::ranges::find(op.operands, "grad", &Operand::role);
  if (made_of == op.operands.end())
    made_of = std::ranges::find(op.operands, "direction", &Operand::role);
  const Spot spot = made_of == op.operands.end() ? Spot{} : locate(view_, *made_of);
  if (spot.group == kNone) refuse("{}: does not update a shard of a group", op.place());
  Names left{made_of->role, "weight"};
  const std::string& optimizer = view_.groups[spot.group].optimizer;
  if (made_of->role == "grad")
    for (const auto& [name, kept] : kept_states(view_.json.at("config"), optimizer))
      left.insert(name);
  const bool main_weights = model_.main_weights && !view_.groups[spot.group].fp8;
  if (main_weights) left.insert("main_weight");
  for (const Operand& operand : op.operands) {
    const Home& home = view_.homes[operand.buffer];
    if (home.groups.empty()) continue;
    const std::string& role = operand.role;
    const std::string kind = role == "grad"          ? "gradient"
                             : role == "direction"   ? "direction"
                             : role == "weight"      ? "parameter"
                             : role == "main_weight" ? "main_parameter"
                                                     : "optimizer_state";
    // Only the ranks that update a parameter keep its optimizer state and main weights.
    const bool kept = kind == "main_parameter" || kind == "optimizer_state";
    if (left.erase(role) != 1 || home.kind != kind || locate(view_, operand) != spot ||
        (kept && home.cuts != spot.kind) || (kind == "optimizer_state" && home.name != role) ||
        spot.group == kNone || spot.begin != 0 || spot.end != view_.groups[spot.group].elements ||
        operand.access != access_of(role, main_weights))
      refuse("{}: its operands are not one shard, or not those of its optimizer", op.place());
    if (role != "weight") continue;
    if (!main_weights) read(op, operand, spot);
    for (Held* held : cut_out(held_in(op, operand, spot), spot.begin, spot.end))
      *held = {updates_[spot.group] + 1, spot.kind};
  }
  if (!left.empty()) refuse("{}: lacks '{}'", op.place(), *left.begin());
  ++updates_[spot.group];
}

Int Weights::updates_of(Int unit, const std::string& role) const {
  for (Index g = 0; g < view_.groups.size(); ++g)
    for (const auto& [begin, parameter] : view_.groups[g].parameters)
      if (view_.groups[g].unit == unit && parameter.role == role) return updates_[g];
  return -1;
}

void Weights::end_step() const {
  for (std::size_t g = 0; g < updates_.size(); ++g)
    if (updates_[g] - before_[g] != (view_.groups[g].trains && view_.holds(g) ? 1 : 0))
      refuse("group {}: is updated {} times in a step", g, updates_[g] - before_[g]);
  before_ = updates_;
}

}  // namespace mfsdp::checker
