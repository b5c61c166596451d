#include "verify/checker/step_state.hpp"

namespace mfsdp::checker {
namespace {

/// Whether an op touches only some rows of an operand.
bool tells_bytes(const Op& op) {
  return op.does.starts_with("embedding_") || op.does.starts_with("cross_entropy") ||
         op.does == "softmax_parts" || op.does == "newton_schulz";
}

void check_scalar(const Op& op, const Operand& operand) {
  if (operand.elements != 4 || operand.dtype != "fp32")
    refuse("{}: '{}' is not four of fp32", op.place(), operand.role);
}

}  // namespace

bool has(const Op& op, const std::string& role) {
  return std::ranges::find(op.operands, role, &Operand::role) != op.operands.end();
}

const Operand& operand(const Op& op, const std::string& role, std::ptrdiff_t nth) {
  for (const Operand& operand : op.operands)
    if (operand.role == role && nth-- == 0) return operand;
  refuse("{}: lacks '{}'", op.place(), role);
}

std::pair<Json, Json> number(const Json& value) {
  return value.is_object() ? std::pair(value.at("num"), value.at("den"))
                           : std::pair(value, Json(1));
}

StepState::StepState(const PlanView& plan, CheckedPlan& figures)
    : view(plan),
      model(view),
      ledger(view, model, figures),
      values(view),
      weights(view, model),
      directions(view) {}

void StepState::forms(const Op& op, const std::map<std::string, std::string>& roles,
                      const Names& attributes) const {
  for (const auto& [role, access] : roles)
    if (operand(op, role).access != access)
      refuse("{}: '{}' is {}, not {}", op.place(), role, operand(op, role).access, access);
  if (op.operands.size() != roles.size())
    refuse("{}: has an operand that its kind does not have", op.place());
  // An operand that is no slice of a group is a row of numbers, or rows whose shape is checked.
  const Names of_rows{"add_rows", "attention_merge", "cast", "token_copy"};
  for (const Operand& operand : op.operands)
    if (view.homes[operand.buffer].groups.empty() && operand.shape.size() != 1 &&
        !of_rows.contains(op.does))
      refuse("{}: operand '{}' is not contiguous numbers", op.place(), operand.role);
  check_attributes(op, op.does, 0, attributes);
}

void StepState::check_attributes(const Op& op, const std::string& kernel, Int rows,
                                 const Names& named) const {
  const auto exact = model.exact(kernel, rows);
  for (const auto& [name, value] : exact)
    if (!op.attributes.contains(name) || op.attributes.at(name) != value)
      refuse("{}: {} is not {}", op.place(), name, value.dump());
  for (const auto& [name, value] : op.attributes)
    if (!exact.contains(name) && !named.contains(name) && (name != "bytes" || !tells_bytes(op)))
      refuse("{}: has no attribute {}", op.place(), name);
  if (tells_bytes(op) && !op.attributes.contains("bytes"))
    refuse("{}: lacks attribute bytes", op.place());
  for (const std::string& name : named)
    if (!op.attributes.contains(name)) refuse("{}: lacks attribute {}", op.place(), name);
}

void StepState::check_scratch(const Op& op, Int least) {
  const Operand& scratch = operand(op, "workspace");
  if (scratch.access != "scratch" || scratch.dtype != "uint8" || scratch.shape.size() != 1 ||
      !scratch.dense || scratch.offset % kScratchUnit != 0 || scratch.elements < least)
    refuse("{}: expected a workspace of at least {} bytes, from a multiple of {} on", op.place(),
           least, kScratchUnit);
  values.make(op, scratch, {});
}

Value StepState::scalar(const Op& op, const std::string& role) {
  check_scalar(op, operand(op, role));
  return values.whole(op, operand(op, role));
}

void StepState::make_scalar(const Op& op, const std::string& role, const Value& value) {
  check_scalar(op, operand(op, role));
  values.make(op, operand(op, role), value);
}

}  // namespace mfsdp::checker
