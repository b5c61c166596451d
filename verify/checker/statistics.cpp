#include "verify/checker/statistics.hpp"

namespace mfsdp::checker {
namespace {

Names names_of(const PerAxis& grid) {
  Names names;
  for (const auto& [axis, ranks] : grid) names.insert(axis);
  return names;
}

/// Ranks that differ on these axes alone, if those are the innermost of a grid; 0: they are not.
Int neighbours_on(const PlanView& view, const Axes& order, const Names& axes) {
  Int ranks = 1;
  Index found = 0;
  for (auto axis = order.rbegin(); axis != order.rend() && found < axes.size(); ++axis) {
    if (!view.mesh.contains(*axis)) continue;
    if (!axes.contains(*axis)) return 0;
    ranks = times(ranks, view.ranks_on(*axis));
    ++found;
  }
  return found == axes.size() ? ranks : 0;
}

}  // namespace

void Statistics::gather(const Op& op, const Operand& from, const Operand& to) {
  StatisticTables::Gathered made{.bytes = times(from.elements, size_of(from.dtype)),
                                 .cells = state_.values.look(from)};
  // Members are counted as ranks are, whatever order a communicator has its axes in.
  const Names over = state_.view.communicator_of(op).at("axes");
  for (const std::string& axis : state_.view.order)
    if (over.contains(axis)) made.axes.push_back(axis);
  tables_.gathered.push_back(std::move(made));
  state_.values.make(op, to, {"gathered", std::ssize(tables_.gathered) - 1, state_.step});
}

void Statistics::take_partial(const Op& op) {
  state_.forms(op, {{"input", "read"}, {"output", "write"}, {"workspace", "scratch"}}, {});
  state_.check_scratch(op, 1024 * 2 * 8 + 8);
  const Operand& output = operand(op, "output");
  const Spot spot = locate(state_.view, operand(op, "input"));
  if (!state_.is_gradient(operand(op, "input")) || spot.group == kNone || output.elements != 1 ||
      spot.begin != 0 || spot.end != state_.view.groups[spot.group].elements ||
      output.dtype != partial_dtype())
    refuse("{}: does not read a shard of a group's gradient", op.place());
  state_.ledger.follow(op, {});
  tables_.partials.push_back({spot.group, spot.kind});
  state_.values.make(op, output, {"norm_partial", std::ssize(tables_.partials) - 1, state_.step});
}

std::string Statistics::partial_dtype() const {
  return state_.model.exact("norm_partial", 0).empty() ? "fp32" : "int64";
}

Statistics::Members Statistics::members_of(const Op& op, const Operand& operand) {
  const Int bytes = times(operand.elements, size_of(operand.dtype));
  const auto cells = state_.values.look(operand);
  if (cells.empty()) refuse("{}: operand '{}' is not a followed value", op.place(), operand.role);
  const Cell& first = cells.front().second;
  if (first.value.name != "gathered") return {{}, cells, bytes};
  const StatisticTables::Gathered& gathered =
      tables_.gathered.at(static_cast<std::size_t>(first.value.owner));
  Members made{.axes = {}, .cells = gathered.cells, .bytes = gathered.bytes};
  Int ranks = 1;
  for (auto axis = gathered.axes.rbegin();
       axis != gathered.axes.rend() && times(ranks, gathered.bytes) < bytes; ++axis) {
    ranks = times(ranks, state_.view.ranks_on(*axis));
    made.axes.insert(*axis);
  }
  // Ranks that differ on the other axes alone have the same parts.
  if (cells.size() != 1 || first.base % bytes != 0 || times(ranks, gathered.bytes) != bytes)
    refuse("{}: operand '{}' is not a part of the gathered values", op.place(), operand.role);
  return made;
}

void Statistics::finish_norm(const Op& op) {
  std::map<std::string, std::string> roles{{"input", "read"}, {"loss", "read"}, {"norm", "write"}};
  Names attributes{"groups", "limit"};
  if (state_.model.scales_loss) roles["loss_scale"] = "read_write";
  if (state_.model.scale_window != 0) attributes.insert("scale_window");
  state_.forms(op, roles, attributes);
  const Operand& input = operand(op, "input");
  const Members members = members_of(op, input);
  std::set<Index> seen;
  const Int size = size_of(partial_dtype());
  for (const auto& [at, cell] : members.cells) {
    if (cell.value.name != "norm_partial" || cell.value.pass != state_.step || cell.base != at ||
        at != std::ssize(seen) * size)
      refuse("{}: byte {} of a rank's values is not a partial norm of this step", op.place(), at);
    const auto& [group, kind] = tables_.partials.at(static_cast<std::size_t>(cell.value.owner));
    const Axes& cut = state_.view.groups[group].cut;
    Names apart(cut.begin(), cut.begin() + kind);
    if (state_.view.groups[group].tp_dim) apart.insert("tp");
    bool right = apart == members.axes;
    if (state_.view.groups[group].of_experts) {
      // Another grid of the same ranks: of as many neighbours each has its own elements.
      apart.insert("ep");
      const Int ranks = neighbours_on(state_.view, kDealtOrder, apart);
      right = ranks != 0 && ranks == neighbours_on(state_.view, kDenseOrder, members.axes);
    }
    if (!seen.insert(group).second || !right)
      refuse("{}: does not have each element of group {} once", op.place(), group);
  }
  const Int trained = std::ranges::count(state_.view.groups, true, &Group::trains);
  if (std::ssize(seen) != trained || members.bytes != trained * size ||
      input.dtype != partial_dtype() || op.attributes.at("groups") != trained ||
      number(op.attributes.at("limit")) != number(state_.model.clip))
    refuse("{}: expected a partial norm of each group that trains, and the limit that is set",
           op.place());
  if (state_.scalar(op, "loss") != Value{"loss", -1, state_.step})
    refuse("{}: 'loss' is not this step's", op.place());
  state_.make_scalar(op, "norm", {"norm", -1, state_.step});
  if (state_.model.scales_loss) keep_scale(op);
}

/// The next step's loss scale is made of this step's, once.
void Statistics::keep_scale(const Op& op) {
  if (!state_.trains || state_.scalar(op, "loss_scale") != scale_ || scale_.pass == state_.step ||
      (state_.model.scale_window != 0 &&
       op.attributes.at("scale_window") != state_.model.scale_window))
    refuse("{}: does not update the loss scale of this step as configured", op.place());
  scale_.pass = state_.step;
  state_.make_scalar(op, "loss_scale", scale_);
}

void Statistics::finish_loss(const Op& op) {
  std::map<std::string, std::string> roles{{"input", "read"}, {"loss", "write"}};
  const bool scales = state_.trains && state_.model.scales_loss;
  if (scales) roles["loss_scale"] = "read";
  state_.forms(op, roles, {});
  // It must be the scale of all gradients of the step: only the norm changes it, which reads this
  // loss.
  if (scales && state_.scalar(op, "loss_scale") != scale_)
    refuse("{}: divides 1/T by another loss scale than the gradients contain", op.place());
  const Operand& input = operand(op, "input");
  const Members members = members_of(op, input);
  Names all = names_of(state_.view.dense);
  all.erase("tp");  // its ranks have the same tokens, and the whole loss of each
  const Cell& cell = members.cells.at(0).second;
  if (members.axes != all || members.cells.size() != 1 || cell.value.name != "loss_sums" ||
      cell.base != members.cells[0].first || input.dtype != state_.model.statistic ||
      members.bytes != 2 * size_of(state_.model.statistic))
    refuse("{}: does not have the loss of each rank once", op.place());
  std::map<Int, Int> rows;  // by microbatch: the end of the rows without a gap
  for (const auto& [pass, row, end] : tables_.sums.at(static_cast<std::size_t>(cell.value.owner)))
    if (std::exchange(rows[pass], end) != row)
      refuse("{}: row {} of a microbatch is not summed once", op.place(), row);
  for (const Int pass : state_.ledger.passes())
    if (rows[pass] != state_.model.tokens) refuse("{}: a microbatch is missing", op.place());
  if (rows.size() != state_.ledger.passes().size())
    refuse("{}: sums a microbatch of another step", op.place());
  state_.make_scalar(op, "loss", {"loss", -1, state_.step});
}

void Statistics::add_loss(const Op& op, const Operand& operand, const Work& work) {
  StatisticTables::Sums sums;
  if (op.attribute("beta") != 0) {
    const Value before = state_.values.whole(op, operand);
    if (before.name != "loss_sums")
      refuse("{}: adds to a value that is not a loss sum", op.place());
    sums = tables_.sums.at(static_cast<std::size_t>(before.owner));
  }
  sums.push_back({work.pass, work.row, work.row + work.rows});
  tables_.sums.push_back(std::move(sums));
  state_.values.make(op, operand, {"loss_sums", std::ssize(tables_.sums) - 1, state_.step});
}

}  // namespace mfsdp::checker
