#include "verify/checker/ledger.hpp"

namespace mfsdp::checker {
namespace {

/// Ops that move gradients. Beside these, zero_padding clears and norm_partial reads.
const Names kMoves{"accumulate", "all_reduce",     "all_to_all", "cast",
                   "d2d",        "reduce_scatter", "sum_ranks"};

}  // namespace

Ledger::Ledger(const PlanView& view, const Model& model, CheckedPlan& figures)
    : view_(view), model_(model), figures_(figures) {
  for (Index b = 0; b < view.homes.size(); ++b)
    if (view.homes[b].kind == "gradient") held_[b] = {{0, {}}, {kMost, {}}};
}

void Ledger::overwritten(const Op& op) {
  for (const Operand& operand : op.operands) {
    const bool makes =
        op.kind == "kernel" && operand.role == "weight_grad" && !kMovers.contains(op.does);
    const auto held = held_.find(operand.buffer);
    if (operand.writes && !makes && held != held_.end() &&
        view_.homes[operand.buffer].groups.empty())
      held->second = {{0, {}}, {kMost, {}}};
  }
}

void Ledger::follow(const Op& op, const Work& work) {
  const bool updates = op.does == "update" || op.does == "momentum";
  const bool adds = op.attribute("beta") != 0;
  for (const Operand& operand : op.operands) {
    const bool home = !view_.homes[operand.buffer].groups.empty();
    const bool makes = work.step != nullptr && operand.role == "weight_grad";
    Spot spot = locate(view_, operand);
    if (makes && !home)  // is moved later
      held_.try_emplace(operand.buffer, Contents{{0, {}}, {kMost, {}}});
    const auto held = held_.find(operand.buffer);
    if (held == held_.end() || op.kind == "release") continue;
    if (!home) spot = {kNone, 0, 0, operand.elements};
    if (!home && operand.offset != 0)
      refuse("{}: '{}' does not begin where its buffer does", op.place(), operand.role);
    if (op.kind == "acquire")
      held->second = {{0, {}}, {kMost, {}}};
    else if (!operand.writes && (updates || op.does == "norm_partial"))
      judge(op, held->second, spot);
    else if (operand.writes && spot.begin < spot.end && makes)
      put(op, operand, held->second, spot,
          Held{{{Term{work.pass, work.step, work.parameter, work.owner, work.row,
                      work.row + work.rows},
                 1}}},
          adds);
    else if (operand.writes && spot.begin < spot.end && op.does == "zero_padding")
      put(op, operand, held->second, spot, Held{.terms = {}}, false);
    else if (operand.writes && spot.begin < spot.end && kMoves.contains(op.does))
      move(op, held->second, spot);
    else if (operand.writes)
      refuse("{}: operand '{}' is not a gradient that it computes", op.place(), operand.role);
  }
}

void Ledger::put(const Op& op, const Operand& to, Contents& into, const Spot& at, const Held& what,
                 bool adds) const {
  const bool narrow = size_of(to.dtype) < size_of(view_.json.at("config").at("grad_dtype"));
  for (Held* held : cut_out(into, at.begin, at.end)) {
    const bool was_rounded = adds && (held->rounded || what.rounded);
    if (!adds) *held = {{}, what.sums, 0};
    for (const auto& [term, sum] : what.terms) held->terms[term] = plus(held->terms[term], sum);
    if (held->sums != what.sums) held->terms[Term{}] = 1;
    held->kind = std::max(held->kind, at.kind);
    held->rounded = what.rounded;
    if (!narrow && !was_rounded) continue;
    std::set<Int> passes;
    for (const auto& [term, sum] : held->terms) passes.insert(term.pass);
    if (passes.size() < 2) continue;
    if (adds) refuse("{}: sums microbatches in a narrower type", op.place());
    held->rounded = true;
  }
}

/// Copies or adds the same elements. A collective sums them, and may leave each rank its slice. An
/// all-to-all gives each rank every rank's part of its slice, and a kernel sums these.
void Ledger::move(const Op& op, Contents& into, const Spot& to) {
  const Operand& input = *std::ranges::find(op.operands, "input", &Operand::role);
  const bool home = !view_.homes[input.buffer].groups.empty();
  const Axes cuts = to.group == kNone ? Axes{} : view_.groups[to.group].cut;
  // A gradient that is not in a gradient buffer yet moves to all elements of a parameter.
  const Spot loose{to.group, 0, 0, input.elements};
  if (!home && (to.group == kNone || !view_.groups[to.group].parameters.contains(to.begin) ||
                input.offset != 0 || !held_.contains(input.buffer)))
    refuse("{}: its input is not a gradient", op.place());
  if (home && !held_.contains(input.buffer)) refuse("{}: its input is not a gradient", op.place());
  const Spot from = home ? locate(view_, input) : loose;
  const Operand& output = *std::ranges::find_if(op.operands, &Operand::writes);
  const std::string& parts = view_.homes[input.buffer].unsummed_over;
  const bool deals = op.does == "all_to_all",
             gives_parts = !view_.homes[output.buffer].unsummed_over.empty();
  if (parts.empty() == (op.does == "sum_ranks") || gives_parts != deals)
    refuse("{}: uses one rank's contribution as a sum over ranks", op.place());
  Names axes;
  Axes cut;
  if (op.kind == "collective") axes = view_.communicator_of(op).at("axes");
  std::erase_if(axes, [&](const std::string& axis) { return !view_.mesh.contains(axis); });
  for (Int kind = 1; kind <= to.kind; ++kind)
    if (const auto& axis = cuts[static_cast<std::size_t>(kind - 1)];
        kind > from.kind || axes.contains(axis))
      cut.push_back(axis);
  const Int shift = home ? 0 : to.begin - from.begin;
  if (from.begin >= from.end || from.group != to.group || from.kind > to.kind ||
      from.begin + shift != to.begin || from.end + shift != to.end ||
      Names(cut.begin(), cut.end()) != (deals || op.does == "reduce_scatter" ? axes : Names{}) ||
      !view_.counts_ranks(cut) ||
      (deals && axes != Names{view_.homes[output.buffer].unsummed_over}))
    refuse("{}: moves a gradient to other elements", op.place());
  const Names summed = deals ? Names{} : parts.empty() ? axes : Names{parts};
  Contents source = held_.at(input.buffer);  // a copy: it may be where it goes
  cut_out(source, from.begin, from.end);
  for (auto i = source.find(from.begin); i->first < from.end; ++i) {
    Held moved = i->second;
    if (moved.kind > from.kind)
      refuse("{}: moves elements that some of its ranks do not hold", op.place());
    for (const auto& [term, sum] : moved.terms)
      if (for_more_ && term.step != nullptr && !begun_.contains(term.pass))
        refuse("{}: moves a gradient that an earlier repetition computed", op.place());
    for (const std::string& axis : summed) ++moved.sums[axis];
    put(op, output, into, {to.group, to.kind, i->first + shift, std::next(i)->first + shift}, moved,
        op.attribute("beta") != 0);
  }
}

void Ledger::judge(const Op& op, Contents& held, const Spot& spot) {
  if (spot.group == kNone) refuse("{}: does not read a shard of a gradient", op.place());
  const auto& parameters = view_.groups[spot.group].parameters;
  for (const auto& [at, parameter] : parameters)
    cut_out(held, std::max(at, spot.begin), std::min(parameter.end, spot.end));
  cut_out(held, spot.begin, spot.end);
  for (auto i = held.find(spot.begin); i->first < spot.end; ++i, ++figures_.gradients) {
    const auto next = parameters.upper_bound(i->first);
    const Parameter* before = next == parameters.begin() ? nullptr : &std::prev(next)->second;
    judge(op, i->first, i->second, spot,
          before != nullptr && i->first < before->end ? before : nullptr);
  }
}

void Ledger::judge(const Op& op, Int at, const Held& held, const Spot& spot,
                   const Parameter* parameter) {
  const Int steps = parameter == nullptr ? 0 : model_.gradients_of(parameter->role);
  // Terms of one microbatch and step follow each other by rows: those of each are all tokens.
  std::map<std::pair<Int, const Step*>, Int> rows;
  bool right = held.kind <= spot.kind;
  for (const auto& [term, sum] : held.terms) {
    Int& next = rows[{term.pass, term.step}];
    right = right && sum == 1 && term.step != nullptr && passes_.contains(term.pass) &&
            term.row == next && parameter != nullptr && term.parameter == parameter->role &&
            model_.owns(term.owner, parameter->role, view_.groups[spot.group].unit);
    next = term.end;
  }
  for (const auto& [of, end] : rows) right = right && end == model_.tokens;
  right = right && std::ssize(rows) == times(steps, std::ssize(passes_)) &&
          (rows.empty() || held.sums == view_.groups[spot.group].reduce);
  if (!right)
    refuse("{}: element {} of the gradient of group {} does not have each contribution once",
           op.place(), at, spot.group);
}

}  // namespace mfsdp::checker
