// Partial norms and the norm.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "verify/proof/ledger/kernel_roles.hpp"
#include "verify/proof/ledger/scaling_state.hpp"

namespace mfsdp::scaling {
namespace {

std::string name_of(const State& s, GroupId id) {
  const Program& program = *s.unrolled.program;
  const auto group = std::ranges::find(program.groups, id, &Group::id);
  const auto unit = s.unrolled.index->units.find(group->unit);
  return unit ? program.units[*unit].name : "";
}

/// Partial norms lie consecutively, and nothing else of a rank was gathered.
bool is_dense(const Sums& input, const Kernel& kernel) {
  const std::int64_t size = size_of(operand_of(kernel, "input")->dtype);
  std::set<std::int64_t> places;
  for (const auto& [place, instance] : input.made_by) places.insert(place);
  for (const auto& [place, partial] : input.received) places.insert(place);
  return std::ssize(places) == input.values() &&
         *places.rbegin() - *places.begin() == (input.values() - 1) * size &&
         (!input.begin || input.count == input.values());
}

/// The shards of a group, each with a partial norm of its own: the same number for all groups, or
/// 0 where they differ.
std::int64_t shards_of_groups(const State& s) {
  std::int64_t shards = 0;
  for (const Group& group : s.unrolled.program->groups) {
    if (!group.requires_grad) continue;
    std::int64_t of_group = 1;
    for (const Axis axis : group.cut) of_group = checked_mul(of_group, s.config.mesh.size(axis));
    for (const AxisPlacement& on : group.shard)
      of_group = checked_mul(of_group, s.config.mesh.size(on.axis));
    if (shards != 0 && of_group != shards) return 0;
    shards = of_group;
  }
  return shards;
}

/// Replicas hold equal values, consecutively. An input from the middle of one replica to the middle
/// of the next has each value once too, but in another order.
bool begins_at_replica(const Sums& input, const Kernel& kernel) {
  const Operand& read = *operand_of(kernel, "input");
  std::int64_t begin = input.made_by.empty() ? read.offset : input.made_by.begin()->first;
  if (!input.received.empty()) begin = std::min(begin, input.received.begin()->first);
  if (input.begin) begin = *input.begin;
  return (read.offset - begin) % read.span_bytes() == 0;
}

/// Axes along which each rank has other elements of the group, or other parameters.
std::set<Axis> sharding_axes(const State& s, const Group& group) {
  std::set<Axis> axes;
  for (const Axis axis : group.cut)
    if (s.config.mesh.size(axis) > 1) axes.insert(axis);
  for (const AxisPlacement& on : group.shard)
    if (s.config.mesh.size(on.axis) > 1) axes.insert(on.axis);
  return axes;
}

/// A group of which a partial norm covers more than the rank's own shard: elements that several
/// ranks have would count several times.
std::optional<GroupId> first_uncut(const State& s, const Sums& input) {
  for (const auto& [offset, instance] : input.made_by)
    for (const FollowedOperand& operand : s.followed.of(s.unrolled.instances[instance].op_index)) {
      if (!operand.gradient) continue;
      const Group& group = s.unrolled.program->groups[operand.located.group];
      for (const Axis axis : group.cut)
        if (s.config.mesh.size(axis) > 1 && operand.located.region.strides[axis] == 0)
          return group.id;
    }
  return std::nullopt;
}

/// A group of which the ranks whose partial norms are read have some shard twice, and so lack
/// another. Ranks count along the last axis of the mesh first, whatever a group is cut along.
std::optional<GroupId> first_missed(const State& s, const Sums& input, const Kernel& kernel) {
  if (!input.over) return std::nullopt;
  const Program& program = *s.unrolled.program;
  const Mesh& mesh = s.config.mesh;
  const Membership members(program.communicators[s.unrolled.index->communicators[*input.over]].axes,
                           mesh);
  const Operand& read = *operand_of(kernel, "input");
  const std::int64_t begin = input.begin.value_or(read.offset);
  const std::int64_t shards = shards_of_groups(s);
  const std::int64_t first = (read.offset - begin) / read.span_bytes() * shards;
  std::set<std::set<Axis>> seen;  // most groups are cut alike
  for (const Group& group : program.groups) {
    const std::set<Axis> axes = sharding_axes(s, group);
    if (!group.requires_grad || !seen.insert(axes).second) continue;
    std::set<std::vector<std::int64_t>> places;
    for (std::int64_t member = first; member < first + shards; ++member) {
      std::vector<std::int64_t> place;
      for (const Axis axis : axes) place.push_back(mesh.index(members.rank(0, member), axis));
      if (!places.insert(std::move(place)).second) return group.id;
    }
  }
  return std::nullopt;
}

/// Whether the input is the partial norms of all trainable groups, once; else what is wrong.
std::optional<std::string> fault_of_groups(const State& s, const Sums& input) {
  std::set<GroupId> groups;
  std::optional<GroupId> doubled;
  const auto add = [&](GroupId group) {
    if (!groups.insert(group).second) doubled = group;
  };
  for (const auto& [offset, instance] : input.made_by)
    if (const auto group = s.group_of(instance); group && s.step_of(instance) == s.step())
      add(*group);
  for (const auto& [offset, partial] : input.received)
    if (s.step_of(partial.instance) == s.step()) add(partial.group);
  if (groups != s.trainable)
    return fmt::format("computes the norm from {} groups of this step; expected {}", groups.size(),
                       s.trainable.size());
  if (doubled)
    return fmt::format("computes the norm from two partial norms of '{}' of each rank",
                       name_of(s, *doubled));
  if (const auto uncut = first_uncut(s, input))
    return fmt::format("computes the norm from more of '{}' than each rank's shard",
                       name_of(s, *uncut));
  return std::nullopt;
}

/// Whether the input is one value of each group of each rank; else what is wrong.
std::optional<std::string> fault_of_values(const State& s, const Sums& input,
                                           const Kernel& kernel) {
  // Partial norms of other pipeline stages are received: no rank is gathered from there.
  const std::int64_t ranks = s.config.mesh.world_size() / s.config.mesh.size(Axis::pp);
  if (input.ranks != ranks)
    return fmt::format("computes the norm from {} ranks; expected {}", input.ranks, ranks);
  if (kernel.attribute("groups") != input.values())
    return fmt::format("has attribute 'groups' {}, but each rank has {} partial norms",
                       kernel.attribute("groups"), input.values());
  const Operand& read = *operand_of(kernel, "input");
  if (const std::int64_t all = checked_mul(input.values(), shards_of_groups(s));
      read.elements() != all)
    return fmt::format("reads {} partial norms; expected {}, those of all shards", read.elements(),
                       all);
  if (!is_dense(input, kernel)) return "reads values between the partial norms that are none";
  if (!is_gathered(input, read))
    return "reads bytes that the gather of partial norms did not write";
  if (!begins_at_replica(input, kernel))
    return "reads partial norms from the middle of one replica to the middle of the next";
  if (const auto missed = first_missed(s, input, kernel))
    return fmt::format("reads partial norms of some shard of '{}' twice, and of another not at all",
                       name_of(s, *missed));
  return std::nullopt;
}

}  // namespace

void keep_partial(State& s, const Kernel& kernel) {
  const Operand* output = operand_of(kernel, "output");
  if (output == nullptr) return;
  write_over(s, *output);
  Sums& sums = s.sums[output->buffer];
  sums.garbage = false;
  sums.made_by.emplace(output->offset, s.now);
}

/// The plan chooses the order of values: kernels add them in fp64 and round once.
void finish_norm(State& s, const Kernel& kernel) {
  const Sums& input = s.input_of(kernel);
  auto fault = fault_of_groups(s, input);
  if (!fault) fault = fault_of_values(s, input, kernel);
  if (fault) report(s, "MF311", *fault);
  if (!s.is_fresh(operand_of(kernel, "loss"), Scale::loss))
    report(s, "MF307", "computes the norm without this step's 1/T");
  change_loss_scale(s, kernel);
  finish(s, operand_of(kernel, "norm"), Scale::norm);
}

}  // namespace mfsdp::scaling
