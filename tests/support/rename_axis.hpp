// Plans whose axes have other names: labels are wrong, and all else is right.
#pragma once

#include <algorithm>
#include <variant>

#include "core/plan/plan.hpp"

namespace mfsdp::test {

/// Everywhere in a program, but for the order of the mesh.
inline void rename_axis(Program& program, Axis from, Axis to) {
  const auto change = [&](Axis& axis) {
    if (axis == from) axis = to;
  };
  const auto change_all = [&](Placement& placement) {
    for (AxisPlacement& on : placement) change(on.axis);
  };
  for (MeshAxis& on : program.config.mesh.dense) change(on.axis);
  for (Communicator& communicator : program.communicators)
    std::ranges::for_each(communicator.axes, change);
  for (Group& group : program.groups) {
    std::ranges::for_each(group.cut, change);
    std::ranges::for_each(group.reduce, change);
    for (Placement* placement : {&group.weight, &group.gradient, &group.state})
      change_all(*placement);
  }
  for (Buffer& buffer : program.buffers)
    if (buffer.holds) change_all(buffer.holds->placement);
  for (Plan& plan : program.plans)
    for (Segment& segment : plan.segments)
      for (Op& op : segment.ops) {
        const auto change_operand = [&](Operand& operand) {
          for (RankStride& stride : operand.rank_strides) change(stride.axis);
        };
        if (auto* kernel = std::get_if<Kernel>(&op.body))
          std::ranges::for_each(kernel->operands, change_operand);
        if (auto* collective = std::get_if<Collective>(&op.body)) {
          change_operand(collective->input);
          change_operand(collective->output);
        }
        if (auto* copy = std::get_if<Copy>(&op.body)) {
          change_operand(copy->input);
          change_operand(copy->output);
        }
      }
}

/// Communicators over one of the axes are over the other one instead.
inline void exchange_communicators(Program& program, Axis a, Axis b) {
  for (Communicator& communicator : program.communicators) {
    if (communicator.axes.size() != 1) continue;
    Axis& axis = communicator.axes[0];
    axis = axis == a ? b : axis == b ? a : axis;
  }
}

}  // namespace mfsdp::test
