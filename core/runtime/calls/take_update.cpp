#include "core/runtime/calls/take_update.hpp"

#include <algorithm>

#include "core/shard/groups.hpp"

namespace mfsdp::kernels {
namespace {

/// The group that an update's gradient belongs to, or null. The plan's op names no group: its unit
/// is that of the gradient's buffer, and a unit has one group with gradients.
const Group* group_of(const Program& program, const Operand& gradient) {
  const auto buffer = std::ranges::find(program.buffers, gradient.buffer, &Buffer::id);
  if (buffer == program.buffers.end() || !buffer->unit) return nullptr;
  const auto group = std::ranges::find_if(program.groups, [&](const Group& candidate) {
    return candidate.requires_grad && candidate.unit == *buffer->unit;
  });
  return group == program.groups.end() ? nullptr : &*group;
}

std::vector<DecayRun> runs_of(const Group& group, std::int64_t begin, std::int64_t end) {
  std::vector<const PlacedParameter*> parameters;
  for (const PlacedParameter& parameter : group.parameters) parameters.push_back(&parameter);
  std::ranges::sort(parameters, {}, &PlacedParameter::offset);
  std::vector<DecayRun> runs;
  std::int64_t at = begin;
  const auto go_to = [&](std::int64_t next, bool decays) {
    next = std::min(next, end);
    if (next <= at) return;
    runs.push_back({.first = at - begin, .count = next - at, .decays = decays});
    at = next;
  };
  for (const PlacedParameter* parameter : parameters) {
    go_to(parameter->offset, false);
    go_to(parameter->offset + parameter->elements(), parameter->decay);
  }
  go_to(end, false);
  return runs;
}

}  // namespace

Result<std::vector<DecayRun>> take_decay_runs(const KernelCall& call, const Program& program) {
  OperandReader in(call);
  const std::int64_t elements = in.attribute("elements");
  const OperandView* grad = in.find("grad");
  if (grad == nullptr) in.complain("grad", "expected this operand");
  MFSDP_TRY(in.result());
  const auto position = static_cast<std::size_t>(grad - call.operands.data());
  const Group* group = group_of(program, call.kernel->operands[position]);
  if (group == nullptr) {
    in.complain("grad", "expected a buffer of a unit with gradients");
    MFSDP_TRY(in.result());
  }
  const std::int64_t begin = resident_intervals(*group, program.config, call.rank).update.begin;
  if (begin + elements > group->elements)
    in.complain("grad", fmt::format("expected a slice of the group's {} elements, got [{}, {})",
                                    group->elements, begin, begin + elements));
  MFSDP_TRY(in.result());
  return runs_of(*group, begin, begin + elements);
}

}  // namespace mfsdp::kernels
