#include "verify/proof/shared_groups.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace mfsdp {
namespace {

bool has_group(const Program& program, GroupId group) {
  return std::ranges::any_of(program.buffers, [&](const Buffer& buffer) {
    return buffer.holds && std::ranges::any_of(buffer.holds->groups, [&](const HeldGroup& held) {
             return held.group == group;
           });
  });
}

/// An axis on which two classes have different places, and that is not one of `summed`.
std::optional<Axis> axis_apart(const Program& a, const Program& b,
                               const std::vector<Axis>& summed) {
  for (const MeshPlace& place : a.classes[0].at) {
    const auto same = [&](const MeshPlace& other) { return other == place; };
    if (std::ranges::none_of(b.classes[0].at, same) &&
        std::ranges::find(summed, place.axis) == summed.end())
      return place.axis;
  }
  return std::nullopt;
}

}  // namespace

void check_shared_groups(const Job& job, FindingList& findings) {
  for (const Group& group : job.programs[0].groups) {
    const Program* first = nullptr;
    for (const Program& program : job.programs) {
      if (!group.requires_grad || program.classes.empty() || !has_group(program, group.id))
        continue;
      const Program* before = std::exchange(first, first == nullptr ? &program : first);
      if (before == nullptr) continue;
      const auto axis = axis_apart(*before, program, group.reduce);
      if (!axis || !findings.wants("MF303")) continue;
      findings.add(
          {.rule = "MF303",
           .message = fmt::format("{} and {} both have group {}, but its gradient is not summed "
                                  "along {}",
                                  before->classes[0].role, program.classes[0].role, group.id.value,
                                  to_string(*axis))});
    }
  }
}

}  // namespace mfsdp
