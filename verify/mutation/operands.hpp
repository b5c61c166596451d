// The operands of an op by number, as mutants name them.
#pragma once

#include "core/plan/instances.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// First part number for dtype mutants of a collective itself: 0 and 1 are its operands.
inline constexpr std::size_t kCollectiveAlone = 2;
inline constexpr std::size_t kWholeCollective = 3;

/// Visits a kernel's operands in their order; input and output of a collective or copy; else none.
void for_each_operand(auto& op, const auto& visit) {
  if (auto* kernel = std::get_if<Kernel>(&op.body))
    for (auto& operand : kernel->operands) visit(operand);
  const auto both = [&](auto* body) {
    if (body == nullptr) return;
    visit(body->input);
    visit(body->output);
  };
  both(std::get_if<Collective>(&op.body));
  both(std::get_if<Copy>(&op.body));
}

/// Moves all operands of a plan from one buffer to another; false if there are none.
inline bool move_operands(Plan& plan, BufferId from, BufferId to) {
  bool moved = false;
  for (Op& op : ops_of(plan))
    for_each_operand(op, [&](Operand& operand) {
      if (!operand.stated() || operand.buffer != from) return;
      operand.buffer = to;
      moved = true;
    });
  return moved;
}

/// The operand of that number, or null.
template <class AnyOp>
auto* operand_at(AnyOp& op, std::size_t number) {
  using Found = std::conditional_t<std::is_const_v<AnyOp>, const Operand, Operand>;
  Found* found = nullptr;
  for_each_operand(op, [&](Found& operand) {
    if (number-- == 0) found = &operand;
  });
  return found;
}

}  // namespace mfsdp
