#include "verify/checker/model_steps.hpp"

#include "verify/checker/forms.hpp"

namespace mfsdp::checker {
namespace {

/// GEMMs may have no workspace.
bool uses_scratch(const Op& op, const Step& step) {
  const bool is_product = Model::multiplies(op.does) || op.does.starts_with("grouped_");
  return step.least_scratch >= 0 && (!is_product || has(op, "workspace"));
}

/// A cast of a weight, or its largest magnitude.
bool is_of_weight(const Flow& flow) { return flow.role == "input" && !flow.parameter.empty(); }

/// The role of a parameter in the name of a value that is made of its weight: "fp8 qkv weight".
std::string parameter_in(const std::string& value) {
  const std::size_t end = value.rfind(' ');
  const std::size_t begin = value.rfind(' ', end - 1) + 1;
  return value.substr(begin, end - begin);
}

/// Operand of each flow of the step, of one role in their order.
std::vector<const Operand*> operands_of(const Op& op, const Step& step) {
  std::vector<const Operand*> found;
  std::map<std::string, std::ptrdiff_t> nth;
  for (const Flow& flow : step.flows) {
    const Operand* match = nullptr;
    std::ptrdiff_t skip = nth[flow.role]++;
    for (const Operand& operand : op.operands)
      if (operand.role == flow.role && skip-- == 0) match = &operand;
    if (match == nullptr) differ("lacks '{}'", flow.role);
    found.push_back(match);
  }
  if (op.operands.size() != step.flows.size() + (uses_scratch(op, step) ? 1 : 0))
    differ("has an operand too many or too few");
  return found;
}

}  // namespace

void ModelSteps::run(const Op& op) {
  const std::string kernel =
      Model::multiplies(op.does) ? fmt::format("{} {}", op.does, op.attribute("kind")) : op.does;
  std::string wrong = "is no kernel of the model";
  for (const Step& step : state_.model.steps(kernel)) {
    try {
      Work work{.step = &step};
      match(op, kernel, step, work);
      check_phase(op, step, work);
      perform(op, step, work);
      return;
    } catch (const Mismatch& mismatch) {
      wrong = mismatch.what();
    }
  }
  refuse("{}: {}", op.place(), wrong);
}

/// A step with trained parameters runs once for each row of a microbatch. It runs again only if the
/// op is marked as recomputation.
void ModelSteps::check_phase(const Op& op, const Step& step, const Work& work) {
  const bool multiplies = Model::multiplies(op.does);
  const bool forward = op.does.ends_with("_forward") || (multiplies && step.product == 0);
  const bool uses =
      std::ranges::any_of(step.flows, [](const Flow& flow) { return flow.role == "weight"; });
  if (!forward || !uses) return;
  const bool again = op.json->value("phase", "") == "recompute";
  std::string what = fmt::format("{} {}", op.does, step.product);
  for (const Flow& flow : step.flows)
    what += flow.role == "weight" ? " " + flow.parameter + flow.reads.name : "";
  const bool known = !computed_.emplace(what, work.owner, work.pass, work.row).second;
  bool counts = state_.trains;
  for (const Operand& operand : op.operands)
    if (const Spot spot = locate(state_.view, operand); spot.group != kNone)
      counts = counts && state_.view.groups[spot.group].trains;
  if (again != known && (again || counts))
    refuse("{}: is {}computed again, contrary to its phase", op.place(), known ? "" : "not ");
}

void ModelSteps::match(const Op& op, const std::string& kernel, const Step& step, Work& work) {
  const auto operands = operands_of(op, step);
  work.rows = state_.model.tokens;
  if (step.chunk) {
    work.rows = op.attribute(Model::multiplies(op.does) ? "m" : "rows");
    if (step.place == Place::head &&
        work.rows > state_.view.json.at("config").at("logits_chunk").get<Int>())
      differ("is of more rows than config.logits_chunk");
  }
  for (std::size_t i = 0; i < operands.size(); ++i)
    check_form(op, step.flows[i], *operands[i], work.rows);
  for (std::size_t i = 0; i < operands.size(); ++i) check_parameter(step.flows[i], *operands[i]);
  const bool casts = op.does == "amax" || op.does == "transpose" || op.does.starts_with("cast_");
  if (casts && !is_of_weight(step.flows[0]) && locate(state_.view, *operands[0]).group != kNone)
    differ("'input' is a weight");
  Names named;
  for (const auto& [name, value] : step.attributes) {
    named.insert(name);
    const Json& wanted = value == Json(kRows) ? Json(work.rows) : value;
    const auto found = op.attributes.find(name);
    // A number by rank is compared as it is written.
    const bool by_rank = wanted.is_object() && wanted.contains("per");
    if (found == op.attributes.end() ||
        (by_rank ? found->second != wanted : number(found->second) != number(wanted)))
      differ("attribute {} is not {}", name, wanted.dump());
  }
  if (std::ranges::find(step.flows, "adds", &Flow::access) != step.flows.end())
    named.insert("beta");
  // Rows of ranks and rows of tokens may be as many: then steps differ in this alone.
  if (op.attributes.contains("peers") && !named.contains("peers")) differ("has attribute peers");
  state_.check_attributes(op, kernel, work.rows, named);
  if (is_of_weight(step.flows[0]))
    work.owner = state_.view.groups[locate(state_.view, *operands[0]).group].unit;
  bool first = true;
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (!step.flows[i].reads.name.empty())
      check_value(op, step, step.flows[i], *operands[i], work, std::exchange(first, false));
  if (work.owner < 0 || state_.model.place_of(work.owner) != step.place)
    differ("is of another place in the model");
  if (step.slides && *step.slides != state_.model.slides(work.owner))
    differ("is of a layer that {}", *step.slides ? "slides" : "sees all tokens");
  if (step.other_rope && *step.other_rope != state_.model.has_other_rope(work.owner))
    differ("is of a layer with {} table of angles", *step.other_rope ? "the second" : "the first");
  if (step.fp8 && *step.fp8 != state_.model.multiplies_in_fp8(work.owner))
    differ("is of a block that {} in FP8", *step.fp8 ? "does not multiply" : "multiplies");
}

/// Distinguishes steps that differ in their weights alone. `use` refuses part of a parameter.
void ModelSteps::check_parameter(const Flow& flow, const Operand& operand) const {
  if (flow.role != "weight" && !is_of_weight(flow)) return;
  const Spot spot = locate(state_.view, operand);
  if (spot.group == kNone && is_of_weight(flow)) differ("'{}' is no weight", flow.role);
  if (spot.group == kNone) return;
  const Group& group = state_.view.groups[spot.group];
  const auto found = group.parameters.find(spot.begin);
  if (found != group.parameters.end() && found->second.role != flow.parameter)
    differ("'{}' is {}, not {}", flow.role, found->second.role, flow.parameter);
}

void ModelSteps::check_value(const Op& op, const Step& step, const Flow& flow,
                             const Operand& operand, Work& work, bool first) {
  if (flow.role == "loss_scale") {
    if (state_.values.whole(op, operand) != statistics_.scale())
      differ("'loss_scale' is not this step's");
    return;
  }
  if (step.fp8 && (flow.role == "amax" || flow.role == "next_amax") && step.delays) {
    const std::string of = flow.reads.name.substr(10);  // after "kept amax " or "next amax "
    if (work.owner < 0) differ("casts a value of no block");
    if (flow.role == "amax") amaxes_.read_kept(op, operand, of, work.owner);
    return;
  }
  // Loss sums are their own.
  if (flow.role == "loss_sums" || (flow.access == "adds" && op.attribute("beta") == 0)) return;
  Extent place = extent_of(flow, operand, work.row);
  const Cell cell = state_.values.read(op, operand, place.begin, place.bytes);
  const Value& value = cell.value;
  const bool of_nobody = value.owner < 0;
  if (value.name != flow.reads.name)
    differ("'{}' is {}, not {}", flow.role, value.name, flow.reads.name);
  if (first && step.chunk) {
    const Int row = place.bytes / work.rows;
    work.row = (place.begin - cell.base) / row;
    place = extent_of(flow, operand, work.row);
    if (work.row < 0 || work.row + work.rows > state_.model.tokens) differ("rows are no rows");
  }
  if (cell.base != place.begin - place.position)
    differ("'{}' does not begin where its value does", flow.role);
  if (!of_nobody && work.owner < 0) work.owner = value.owner - flow.reads.shift;
  if (of_nobody && step.place == Place::embedding) work.owner = 0;
  if (value.pass < -1 && value.pass != pass_of_update(state_.weights.updates_of(
                                           value.owner, parameter_in(value.name))))
    differ("'{}' is of the weight before its update", flow.role);
  if (value.pass >= 0 && work.pass < 0) work.pass = value.pass;
  if ((!of_nobody && value.owner != work.owner + flow.reads.shift) ||
      (value.pass >= 0 && value.pass != work.pass))
    differ("'{}' is of another block or microbatch", flow.role);
}

/// Weights are read, values made, and gradients entered.
void ModelSteps::perform(const Op& op, const Step& step, Work& work) {
  const auto operands = operands_of(op, step);
  for (std::size_t i = 0; i < operands.size(); ++i)
    if (!step.flows[i].parameter.empty()) use(op, step.flows[i], *operands[i], work);
  state_.ledger.follow(op, work);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const Flow& flow = step.flows[i];
    const Operand& operand = *operands[i];
    if (flow.role == "loss_sums") {
      statistics_.add_loss(op, operand, work);
    } else if (step.delays && flow.role == "next_amax") {
      amaxes_.keep(op, operand, flow.makes.name.substr(10), work.owner, work.pass);
    } else if (flow.access == "scratch") {
      state_.values.make(op, operand, {});
    } else if (!flow.makes.name.empty() && operand.access != "read") {
      const Extent place = extent_of(flow, operand, work.row);
      const bool of_weight = is_of_weight(step.flows[0]);
      const Int pass =
          of_weight ? pass_of_update(state_.weights.updates_of(work.owner, step.flows[0].parameter))
                    : work.pass;
      state_.values.write(op, operand, place.begin, place.bytes,
                          {flow.makes.name, work.owner + flow.makes.shift, pass}, place.position);
    }
  }
  if (uses_scratch(op, step)) state_.check_scratch(op, step.least_scratch);
}

void ModelSteps::use(const Op& op, const Flow& flow, const Operand& operand, Work& work) {
  const bool makes = flow.role == "weight_grad";
  const Spot spot = locate(state_.view, operand);
  if (makes) work.parameter = flow.parameter;
  // A gradient that is summed in more bits first is moved to its place later.
  if (makes && state_.view.homes[operand.buffer].kind.empty()) {
    if (operand.dtype != state_.model.statistic)
      refuse("{}: sums in a narrower dtype than configured", op.place());
    return;
  }
  if (spot.group == kNone || spot.kind != 0)
    refuse("{}: operand '{}' is not a parameter", op.place(), flow.role);
  const Group& group = state_.view.groups[spot.group];
  const auto found = group.parameters.find(spot.begin);
  if (found == group.parameters.end() || found->second.end != spot.end ||
      found->second.role != flow.parameter || found->second.shape != operand.shape ||
      !state_.model.owns(work.owner, flow.parameter, group.unit))
    refuse("{}: '{}' is not {} of its unit", op.place(), flow.role, flow.parameter);
  if (!makes) state_.weights.read(op, operand, spot);
  if (makes && !state_.is_gradient(operand))
    refuse("{}: operand '{}' is not a gradient", op.place(), flow.role);
  // Rows of one microbatch are not added up in fewer bits than their sum is worth.
  if (makes && work.row > 0 && size_of(operand.dtype) < size_of(state_.model.statistic))
    refuse("{}: sums rows of a microbatch in {}", op.place(), operand.dtype);
}

}  // namespace mfsdp::checker
