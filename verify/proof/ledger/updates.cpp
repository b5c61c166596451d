// Whether an update's operands are one slice of one group, and ops touch the group that they name.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <vector>

#include "core/plan/instances.hpp"
#include "verify/findings/place_names.hpp"
#include "verify/proof/ledger/checks.hpp"
#include "verify/proof/ledger/kernel_roles.hpp"

namespace mfsdp {
namespace {

/// The operand that an update reads: a gradient, or the direction that `momentum` computed from it.
std::string_view made_of_role(const Kernel& kernel, const Layouts& layouts, const Op& op) {
  if (is_momentum(kernel) || !op.group) return "grad";
  for (const GroupLayout& layout : layouts.groups)
    if (layout.group->id == *op.group && layout.group->optimizer &&
        orthogonalises(*layout.group->optimizer))
      return "direction";
  return "grad";
}

/// A message where an update is wrong; else empty.
std::string fault_of(const Op& op, const Kernel& kernel, const Layouts& layouts) {
  const std::string_view made_of = made_of_role(kernel, layouts, op);
  const Operand* gradient = operand_of(kernel, made_of);
  if (gradient == nullptr) return fmt::format("has no operand '{}'", made_of);
  const auto slice = layouts.locate(*gradient);
  if (!slice) return {};
  const GroupLayout& layout = layouts.groups[slice->group];
  if (op.unit && *op.unit != layout.group->unit)
    return fmt::format("reads a gradient of '{}', which is another unit than the op's",
                       layout.name);
  if (!op.group) return fmt::format("states no group, but updates '{}'", layout.name);
  if (slice->region.count == 0) return "reads an empty gradient";
  if (!slice->exact || !layout.level_of(slice->region))
    return fmt::format("reads a gradient at {} of '{}', which is not a shard of it",
                       to_text(slice->region), layout.name);
  if (const std::int64_t stated = kernel.attribute("elements", slice->region.count);
      stated != slice->region.count)
    return fmt::format("states {} elements, but its gradient has {}", stated, slice->region.count);
  std::vector<BufferId> buffers;
  for (const Operand& operand : kernel.operands) {
    const Holds holds = layouts.holds(operand);
    if (holds != Holds::weight && holds != Holds::state && holds != Holds::direction) continue;
    if (&operand == gradient) continue;
    if (std::ranges::find(buffers, operand.buffer) != buffers.end())
      return fmt::format("has operand '{}' in the same buffer as another operand", operand.role);
    buffers.push_back(operand.buffer);
    const auto located = layouts.locate(operand);
    if (located->exact && located->group == slice->group && located->region == slice->region)
      continue;
    return fmt::format("has operand '{}' at {} of '{}', but its gradient is at {} of '{}'",
                       operand.role, to_text(located->region), layouts.groups[located->group].name,
                       to_text(slice->region), layout.name);
  }
  return {};
}

/// The content that an update's operand needs in its buffer; nothing for operands of other roles.
std::optional<ContentKind> content_of(std::string_view role) {
  if (role == "grad") return ContentKind::gradient;
  if (role == "direction") return ContentKind::direction;
  if (role == "weight") return ContentKind::parameter;
  if (role == "main_weight") return ContentKind::main_parameter;
  if (is_optimizer_state(role)) return ContentKind::optimizer_state;
  return std::nullopt;
}

/// A message where an operand of an update is in a buffer for other contents; else empty.
std::string fault_of_contents(const Kernel& kernel, const Program& program,
                              const IdIndex<BufferId>& buffers) {
  for (const Operand& operand : kernel.operands) {
    const auto wanted = content_of(operand.role);
    if (!wanted) continue;
    const std::string_view state =
        wanted == ContentKind::optimizer_state ? std::string_view(operand.role) : "";
    const Buffer& buffer = program.buffers[buffers[operand.buffer]];
    if (!buffer.holds || buffer.holds->kind != *wanted || buffer.holds->state != state)
      return fmt::format("has operand '{}' in buffer '{}', which the plan does not reserve for it",
                         operand.role, buffer.name);
  }
  return {};
}

/// A state of the group's optimizer that the update does not touch, one that it does not have, or
/// one in another type than it is kept in.
std::string fault_of_states(const Op& op, const Kernel& kernel, const Program& program,
                            const IdIndex<GroupId>& groups) {
  if (!op.group) return {};
  const Group& group = program.groups[groups[*op.group]];
  if (!group.optimizer) return "updates a frozen group";
  if (is_momentum(kernel) && !orthogonalises(*group.optimizer))
    return fmt::format("computes an update direction, which optimizer {} does not use",
                       to_string(*group.optimizer));
  if (is_momentum(kernel) && operand_of(kernel, "direction") == nullptr)
    return "has no operand 'direction'";
  if (is_update(kernel) && operand_of(kernel, "direction") != nullptr &&
      !orthogonalises(*group.optimizer))
    return fmt::format("reads an update direction, which optimizer {} does not compute",
                       to_string(*group.optimizer));
  const bool has_main = operand_of(kernel, "main_weight") != nullptr;
  const bool keeps_main = program.config.main_dtype != group.dtype;
  if (is_update(kernel) && has_main != keeps_main)
    return keeps_main ? "has no operand 'main_weight', but main weights have another dtype than "
                        "the weights"
                      : "has an operand 'main_weight', but the weights are the main weights";
  std::vector<KeptState> states;
  if (is_momentum(kernel) || !orthogonalises(*group.optimizer))
    states = program.config.kept_states(*group.optimizer);
  for (const KeptState& state : states) {
    const Operand* operand = operand_of(kernel, state.name);
    if (operand == nullptr)
      return fmt::format("has no operand '{}', which is a state of optimizer {}", state.name,
                         to_string(*group.optimizer));
    if (operand->dtype != state.dtype)
      return fmt::format("has operand '{}' in {}, but that state is kept in {}", state.name,
                         to_string(operand->dtype), to_string(state.dtype));
  }
  for (const Operand& operand : kernel.operands)
    if (is_optimizer_state(operand.role) &&
        std::ranges::find(states, operand.role, &KeptState::name) == states.end())
      return fmt::format("has an operand '{}', which is not a state of optimizer {}", operand.role,
                         to_string(*group.optimizer));
  return {};
}

std::span<const Operand> operands_of(const Op& op) {
  if (const auto* kernel = std::get_if<Kernel>(&op.body)) return kernel->operands;
  return {};
}

/// An operand of another group than the op names, or nothing.
std::string fault_of_group(const Op& op, const Layouts& layouts) {
  if (!op.group) return {};
  const auto fault = [&](const Operand& operand) -> std::string {
    if (!operand.stated()) return {};
    const auto located = layouts.locate(operand);
    if (!located) return {};
    const GroupLayout& layout = layouts.groups[located->group];
    if (layout.group->id == *op.group) return {};
    return fmt::format("states group {}, but its operand '{}' belongs to '{}'", op.group->value,
                       operand.role, layout.name);
  };
  for (const Operand& operand : operands_of(op))
    if (std::string found = fault(operand); !found.empty()) return found;
  if (const auto* collective = std::get_if<Collective>(&op.body))
    for (const Operand* operand : {&collective->input, &collective->output})
      if (std::string found = fault(*operand); !found.empty()) return found;
  return {};
}

}  // namespace

void check_updates(const Program& program, const Layouts& layouts, FindingList& findings) {
  const IdIndex<BufferId> buffers(program.buffers);
  const IdIndex<GroupId> groups(program.groups);
  for (const Plan& plan : program.plans)
    for (const Op& op : ops_of(plan)) {
      const auto* kernel = std::get_if<Kernel>(&op.body);
      const bool updates = kernel != nullptr && (is_update(*kernel) || is_momentum(*kernel));
      if (!updates && !op.group) continue;
      std::string fault;
      if (updates) {
        if (const auto role = plan.role(); role && role != PlanRole::train)
          fault = fmt::format("updates weights in a plan of role {}", to_string(*role));
        if (fault.empty()) fault = fault_of_contents(*kernel, program, buffers);
        if (fault.empty()) fault = fault_of(op, *kernel, layouts);
        if (fault.empty()) fault = fault_of_states(op, *kernel, program, groups);
      }
      if (fault.empty()) fault = fault_of_group(op, layouts);
      if (fault.empty() || !findings.wants("MF504")) continue;
      findings.add({.rule = "MF504",
                    .message = fmt::format("op {} ({}) {}", op.id.value, op.name, fault),
                    .places = {place_in_plan(plan, op)}});
    }
}

}  // namespace mfsdp
