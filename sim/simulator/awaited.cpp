#include "sim/simulator/awaited.hpp"

#include <algorithm>

#include "core/plan/instances.hpp"

namespace mfsdp {
namespace {

bool writes(Access access) { return access != Access::read; }

}  // namespace

AwaitedKinds::AwaitedKinds(const Program& program, const Plan& plan) : program_(program) {
  for (const Op& op : ops_of(plan)) {
    const auto* kernel = std::get_if<Kernel>(&op.body);
    if (kernel == nullptr || kernel->kind != KernelKind::norm_partial) continue;
    for (const Operand& operand : kernel->operands)
      if (writes(operand.access)) norm_parts_.insert(operand.buffer);
  }
}

bool AwaitedKinds::crosses(const Collective& collective, Axis axis) const {
  const auto communicator =
      std::ranges::find(program_.communicators, collective.communicator, &Communicator::id);
  return communicator != program_.communicators.end() &&
         std::ranges::find(communicator->axes, axis) != communicator->axes.end();
}

Awaited AwaitedKinds::of(const Op& op, const Collective& collective) const {
  if (is_point_to_point(collective.kind)) return Awaited::sends;
  const bool passes =
      op.phase == Phase::forward || op.phase == Phase::recompute || op.phase == Phase::backward;
  const auto stream = std::ranges::find(program_.streams, op.stream, &Stream::id);
  const bool is_known = stream != program_.streams.end();
  const bool beside_none = is_known && stream->role == StreamRole::compute;
  const bool moves_rows =
      beside_none ||
      (is_known && (stream->role == StreamRole::outer || stream->role == StreamRole::exchange));
  const bool of_values = passes && !op.group;
  const bool of_heads = collective.kind == CollectiveKind::all_to_all;
  if (of_values && crosses(collective, Axis::tp)) return Awaited::rows;
  if (of_values && moves_rows && crosses(collective, Axis::cp))
    return collective.kind == CollectiveKind::all_reduce ? Awaited::expert_rows
           : of_heads                                    ? Awaited::heads
                                                         : Awaited::keys;
  if (op.phase == Phase::reduce || collective.reduction == Reduction::sum)
    return Awaited::gradients;
  if (collective.input.stated() && norm_parts_.contains(collective.input.buffer))
    return Awaited::gradient_norm;
  if (passes && (beside_none || of_heads))
    return crosses(collective, Axis::cp) ? Awaited::heads : Awaited::expert_rows;
  const bool gathers = collective.kind == CollectiveKind::all_gather;
  return gathers && op.phase != Phase::optimizer && op.phase != Phase::output ? Awaited::weights
                                                                              : Awaited::others;
}

}  // namespace mfsdp
