#include "verify/checker/directions.hpp"

namespace mfsdp::checker {
namespace {

Int aligned(Int bytes) { return times(plus(bytes, kScratchUnit - 1) / kScratchUnit, kScratchUnit); }

/// Two copies of the matrix, five squares of its shorter side, sums of a grid, and 4 MiB.
Int scratch_of(Int rows, Int cols, Int size) {
  const Int side = std::min(rows, cols);
  const Int copies = times(2, aligned(times(times(rows, cols), size)));
  const Int squares = times(5, aligned(times(times(side, side), size)));
  return plus(plus(copies, squares), aligned(1024 * 2 * 8 + 8) + (Int{4} << 20));
}

const Operand* find(const Op& op, const std::string& role) {
  const auto found = std::ranges::find(op.operands, role, &Operand::role);
  return found == op.operands.end() ? nullptr : &*found;
}

}  // namespace

Directions::Directions(const PlanView& view) : view_(view) {
  for (const Group& group : view.groups) matrices_.push_back(matrices_of(group));
  for (Index b = 0; b < view.homes.size(); ++b)
    if (view.homes[b].kind == "direction") acquire(b);
}

/// Checkpoints have query, key and value apart, and gate and up, but where they are fused.
std::vector<Directions::Matrix> Directions::matrices_of(const Group& group) const {
  const Json& model = view_.json.at("config").at("model");
  const bool fused = model.value("fused_weights", false);
  const Int head = model.at("head_dim");
  std::vector<Matrix> matrices;
  if (group.tp_dim) return matrices;  // Muon is refused with ranks on tp
  for (const auto& [begin, parameter] : group.parameters) {
    if (parameter.shape.size() != 2) continue;
    std::vector<Int> parts{parameter.shape[0]};
    if (parameter.role == "qkv" && !fused)
      parts = {times(model.at("heads"), head), times(model.at("kv_heads"), head),
               times(model.at("kv_heads"), head)};
    if (parameter.role == "gate_up" && !fused)
      parts = {model.at("intermediate"), model.at("intermediate")};
    if (parameter.role == "shared_gate_up") parts.assign(2, model.at("shared_intermediate"));
    // Each expert's are its own.
    const Int here = group.of_experts ? view_.ranks_on("ep") : 1;
    const auto experts = static_cast<std::size_t>(model.value("experts", Int{0}) / here);
    if (parameter.role == "experts_gate_up") {
      const Int inner = model.at("expert_intermediate");
      const bool in_turn = model.at("family") == "gpt_oss";
      parts = in_turn ? std::vector<Int>(experts, 2 * inner) : std::vector<Int>(2 * experts, inner);
    }
    if (parameter.role == "experts_down") parts.assign(experts, model.at("hidden"));
    Int at = begin;
    for (const Int rows : parts) {
      matrices.push_back({at, rows, parameter.shape[1]});
      at = plus(at, times(rows, parameter.shape[1]));
    }
    if (at != parameter.end) refuse("config: '{}' is no such matrices", parameter.role);
  }
  return matrices;
}

void Directions::acquire(Index buffer) {
  const Home& home = view_.homes[buffer];
  if (home.kind != "direction") return;
  Held& held = held_[buffer] = {};
  for (const auto& [group, at] : home.groups)
    if (held.slots.empty() || home.distributed_over.empty())
      held.slots.emplace_back(matrices_[group].size());
}

std::vector<Directions::Mark>& Directions::marks(const Op& op, const Operand& operand,
                                                 const Spot& spot) {
  const Home& home = view_.homes[operand.buffer];
  if (home.kind != "direction" || spot.group == kNone)
    refuse("{}: operand '{}' is not the update direction (of Muon) of a parameter group",
           op.place(), operand.role);
  Index slot = 0;
  while (home.distributed_over.empty() && home.groups[slot].first != spot.group) ++slot;
  return held_.at(operand.buffer).slots.at(slot);
}

Int Directions::slice_bytes(Index buffer) const {
  const Home& home = view_.homes[buffer];
  const Group& group = view_.groups[home.groups[0].first];
  return times(group.elements / parts_of(view_, group, home.cuts),
               size_of(view_.json.at("buffers")[buffer].at("dtype")));
}

void Directions::momentum(const Op& op) {
  const Operand* grad = find(op, "grad");
  const Spot spot = grad == nullptr ? Spot{} : locate(view_, *grad);
  if (spot.group == kNone || view_.groups[spot.group].optimizer != "muon" || spot.begin != 0 ||
      spot.end != view_.groups[spot.group].elements)
    refuse("{}: its group is not orthogonalised", op.place());
  Names left{"grad", "direction"};
  for (const auto& [name, kept] : kept_states(view_.json.at("config"), "muon")) left.insert(name);
  for (const Operand& operand : op.operands) {
    const Home& home = view_.homes[operand.buffer];
    if (home.groups.empty()) continue;
    const bool state = home.kind == "optimizer_state";
    const char* access = operand.role == "grad" ? "read" : state ? "read_write" : "write";
    const std::string kind = operand.role == "grad"        ? "gradient"
                             : operand.role == "direction" ? "direction"
                                                           : "optimizer_state";
    if (left.erase(operand.role) != 1 || home.kind != kind || operand.access != access ||
        locate(view_, operand) != spot ||
        (state && (home.cuts != spot.kind || home.name != operand.role)))
      refuse("{}: '{}' is not the slice of its gradient", op.place(), operand.role);
  }
  if (!left.empty()) refuse("{}: lacks '{}'", op.place(), *left.begin());
  if (!view_.homes[find(op, "direction")->buffer].distributed_over.empty())
    refuse("{}: its direction is another group's on other ranks", op.place());
  if (const auto last = momentums_.find(spot.group);
      last != momentums_.end() && last->second == step_)
    refuse("{}: computes its momentum twice", op.place());
  momentums_[spot.group] = step_;
  for (Mark& mark : marks(op, *find(op, "direction"), spot)) mark = {1, step_, spot.kind};
}

void Directions::zero(const Op& op, const Operand& operand) {
  const Home& home = view_.homes[operand.buffer];
  const Operand& whole = view_.buffers[operand.buffer];
  const Int used = plus(home.groups.back().second, slice_bytes(operand.buffer));
  if (!home.distributed_over.empty() || !operand.dense || !operand.rank_strides.empty() ||
      operand.offset != used || operand.end != whole.end)
    refuse("{}: operand '{}' is not the rest of the buffer after its groups", op.place(),
           operand.role);
  held_.at(operand.buffer).rest = true;
}

void Directions::newton_schulz(const Op& op) {
  const Operand* matrix = find(op, "matrix");
  const Operand* scratch = find(op, "workspace");
  if (op.operands.size() != 2 || matrix == nullptr || scratch == nullptr ||
      matrix->access != "read_write" || scratch->access != "scratch" ||
      matrix->shape != std::vector<Int>{op.attribute("rows"), op.attribute("cols")} ||
      scratch->dtype != "uint8" || scratch->shape.size() != 1 ||
      scratch->offset % kScratchUnit != 0 || !view_.homes[scratch->buffer].kind.empty() ||
      scratch->elements < scratch_of(matrix->shape[0], matrix->shape[1], size_of(matrix->dtype)))
    refuse("{}: expected a matrix of its sizes, and its scratch", op.place());
  const Spot spot = locate(view_, *matrix);
  auto& held = marks(op, *matrix, spot);
  const auto& matrices = matrices_[spot.group];
  const auto at = std::ranges::find(matrices, spot.begin, &Matrix::begin);
  if (spot.kind != 0 || at == matrices.end() || matrix->shape[0] != at->rows ||
      matrix->shape[1] != at->cols)
    refuse("{}: is not a whole matrix of its group", op.place());
  Mark& mark = held[static_cast<std::size_t>(at - matrices.begin())];
  if (mark != Mark{1, step_, 0})
    refuse("{}: the matrix is not this step's momentum, or is orthogonalised twice", op.place());
  mark.stage = 2;
}

/// Slices of one group along one more of its cuts.
void Directions::gather(const Op& op) {
  const Operand& part = op.operands.at(0);
  const Operand& whole = op.operands.at(1);
  const Spot from = locate(view_, part);
  const Spot to = locate(view_, whole);
  Names axes = view_.communicator_of(op).at("axes");
  std::erase_if(axes, [&](const std::string& axis) { return !view_.mesh.contains(axis); });
  Names cut;
  for (Int kind = to.kind; from.group != kNone && kind < from.kind; ++kind)
    cut.insert(view_.groups[from.group].cut[static_cast<std::size_t>(kind)]);
  if (part.buffer != whole.buffer || from.group == kNone || from.group != to.group ||
      from.begin != to.begin || from.end != to.end || from.kind <= to.kind || axes != cut)
    refuse("{}: does not gather shards of a direction", op.place());
  for (Mark& mark : marks(op, whole, to)) {
    if (mark.stage == 0 || mark.kind > from.kind) refuse("{}: gathers nothing", op.place());
    mark.kind = to.kind;
  }
}

void Directions::exchange(const Op& op) {
  const Operand& from = op.operands.at(0);
  const Operand& to = op.operands.at(1);
  const Home& given = view_.homes[from.buffer];
  const Home& taken = view_.homes[to.buffer];
  const bool in = given.distributed_over.empty();
  const Home& slices = in ? given : taken;
  const Home& whole = in ? taken : given;
  const Axes axes = view_.communicator_of(op).at("axes");
  Axes several;
  for (const std::string& axis : axes)
    if (view_.mesh.contains(axis)) several.push_back(axis);
  const auto groups = [](const Home& home) {
    std::vector<Index> all;
    for (const auto& [group, at] : home.groups) all.push_back(group);
    std::ranges::sort(all);  // the list may have any order: offsets place the slices
    return all;
  };
  const auto is_all = [&](const Operand& operand) {
    const Operand& buffer = view_.buffers[operand.buffer];
    return operand.dense && operand.rank_strides.empty() && operand.begin == buffer.begin &&
           operand.end == buffer.end;
  };
  if (given.kind != "direction" || taken.kind != "direction" || !slices.distributed_over.empty() ||
      several != Axes{whole.distributed_over} || groups(slices) != groups(whole) ||
      slices.cuts != 1 || view_.groups[slices.groups[0].first].cut[0] != whole.distributed_over ||
      !is_all(from) || !is_all(to))
    refuse("{}: distributes directions in another way than its buffers state", op.place());
  Held& source = held_.at(from.buffer);
  Held& target = held_.at(to.buffer);
  if (in) {
    if (!source.rest && std::ssize(source.slots) != view_.ranks_on(whole.distributed_over))
      refuse("{}: distributes a buffer whose bytes after its parameter groups were not zeroed",
             op.place());
    for (const auto& slot : source.slots)
      for (const Mark& mark : slot)
        if (mark != Mark{1, step_, 1}) refuse("{}: is not this step's momentum", op.place());
  }
  if (in)
    target.from = slices.groups;
  else if (source.from != slices.groups)
    refuse("{}: returns directions to other groups than they came from", op.place());
  for (auto& slot : target.slots) {
    slot = source.slots[0];
    for (Mark& mark : slot) mark.kind = in ? 0 : 1;
  }
}

void Directions::update(const Op& op) {
  const Operand* direction = find(op, "direction");
  const Operand* weight = find(op, "weight");
  const Spot spot = weight == nullptr ? Spot{} : locate(view_, *weight);
  const bool wanted = spot.group != kNone && view_.groups[spot.group].optimizer == "muon";
  if ((direction != nullptr) != wanted)
    refuse("{}: {} a direction", op.place(), wanted ? "does not read" : "reads");
  if (direction == nullptr) return;
  const Spot along = locate(view_, *direction);
  for (const Mark& mark : marks(op, *direction, along))
    if (mark.stage != 2 || mark.step != step_ || mark.kind > along.kind)
      refuse("{}: its direction is not this step's, orthogonalised", op.place());
}

void Directions::end_step() const {
  for (Index g = 0; g < view_.groups.size(); ++g) {
    const auto last = momentums_.find(g);
    if (view_.groups[g].optimizer == "muon" && view_.holds(g) &&
        (last == momentums_.end() || last->second != step_))
      refuse("group {}: no op computes its momentum in a step", g);
  }
}

}  // namespace mfsdp::checker
