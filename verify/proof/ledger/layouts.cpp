#include "verify/proof/ledger/layouts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string_view>
#include <utility>

#include "verify/proof/order/overlap.hpp"

namespace mfsdp {
namespace {

void report(FindingList& findings, const char* rule, std::string message,
            std::optional<BufferId> buffer = std::nullopt) {
  findings.add({.rule = rule, .message = std::move(message), .buffer = buffer});
}

/// Parameters and the padding between them; nothing, with a finding, where they do not fit.
std::vector<Atom> atoms_of_group(const Group& group, const std::string& name,
                                 FindingList& findings) {
  std::vector<Atom> atoms;
  const auto wrong = [&](const PlacedParameter& parameter, const std::string& what) {
    report(findings, "MF501",
           fmt::format("group '{}': parameter '{}' {}", name, parameter.name, what));
    return std::vector<Atom>{};
  };
  for (const PlacedParameter& parameter : group.parameters) {
    if (std::ranges::any_of(parameter.shape, [](std::int64_t dim) { return dim < 0; }))
      return wrong(parameter, "has a negative dimension");
    const std::int64_t end = checked_add(parameter.offset, parameter.elements());
    if (parameter.offset < 0 || end > group.elements)
      return wrong(parameter, fmt::format("is at elements [{}, {}), but the group has {}",
                                          parameter.offset, end, group.elements));
    if (end > parameter.offset) atoms.push_back({parameter.offset, end, &parameter});
  }
  std::ranges::sort(atoms, {}, &Atom::begin);
  std::vector<Atom> all;
  std::int64_t covered = 0;
  for (const Atom& atom : atoms) {
    if (atom.begin < covered)
      return wrong(*atom.parameter,
                   fmt::format("begins at element {}, but another parameter ends at {}", atom.begin,
                               covered));
    if (atom.begin > covered) all.push_back({covered, atom.begin, nullptr});
    all.push_back(atom);
    covered = atom.end;
  }
  if (covered < group.elements) all.push_back({covered, group.elements, nullptr});
  return all;
}

/// A gradient is a sum over tokens. Ranks that differ on any axis but pp work on other tokens, so
/// each such axis is in the sum unless the ranks along it have other parameters. Parameters that
/// are cut along ep lie on the experts' grid, all others on the dense one. Whether ranks of tp have
/// other rows depends on the layouts of values: value_layouts.hpp.
bool sums_all_tokens(const Group& group, const Mesh& mesh) {
  std::vector<Axis> wanted;
  const bool of_experts =
      std::ranges::find(group.shard, Axis::ep, &AxisPlacement::axis) != group.shard.end();
  for (const MeshAxis& on : of_experts ? mesh.experts : mesh.dense)
    if (on.axis != Axis::pp && on.axis != Axis::tp &&
        std::ranges::find(group.shard, on.axis, &AxisPlacement::axis) == group.shard.end())
      wanted.push_back(on.axis);
  std::vector<Axis> stated = with_several_ranks(group.reduce, mesh);
  std::erase(stated, Axis::tp);
  wanted = with_several_ranks(std::move(wanted), mesh);
  std::ranges::sort(stated);
  std::ranges::sort(wanted);
  return stated == wanted;
}

/// How many of the group's cuts a placement makes; nothing where it is not the first ones of them.
std::optional<int> level_of(const Placement& placement, const Group& group, const Mesh& mesh) {
  if (std::ranges::any_of(placement, [](const AxisPlacement& on) {
        return on.kind != PlacementKind::flat && on.kind != PlacementKind::replicate;
      }))
    return std::nullopt;
  int level = 0;
  auto cut = group.cut.begin();
  for (const AxisPlacement& on : placement) {
    if (on.kind != PlacementKind::flat || mesh.size(on.axis) == 1) continue;
    while (cut != group.cut.end() && mesh.size(*cut) == 1) ++cut;
    if (cut == group.cut.end() || *cut != on.axis) return std::nullopt;
    ++cut;
    ++level;
  }
  return level;
}

Holds holds_of(const Buffer& buffer) {
  if (!buffer.holds) return Holds::other;
  switch (buffer.holds->kind) {
    case ContentKind::cast_parameter:
    case ContentKind::parameter: return Holds::weight;
    case ContentKind::gradient: return Holds::gradient;
    case ContentKind::main_parameter:
    case ContentKind::optimizer_state: return Holds::state;
    case ContentKind::direction: return Holds::direction;
    case ContentKind::port: break;
  }
  return Holds::other;
}

/// The placement that the group states for what the buffer keeps of it.
const Placement& placement_of(const Group& group, Holds holds) {
  if (holds == Holds::weight) return group.weight;
  return holds == Holds::gradient ? group.gradient : group.state;
}

}  // namespace

std::vector<Axis> with_several_ranks(std::vector<Axis> axes, const Mesh& mesh) {
  std::erase_if(axes, [&](Axis axis) { return mesh.size(axis) == 1; });
  return axes;
}

Region part_of(Region whole, std::vector<Axis> axes, const Mesh& mesh) {
  axes = with_several_ranks(std::move(axes), mesh);
  std::ranges::sort(axes, std::greater(), [&](Axis axis) { return mesh.stride(axis); });
  for (const Axis axis : axes) whole = part_of(whole, axis, mesh);
  return whole;
}

Region part_of(const Region& whole, Axis axis, const Mesh& mesh) {
  const std::int64_t ranks = mesh.size(axis);
  Region part = whole;
  part.count = whole.count / ranks;
  if (ranks > 1) part.strides[axis] = checked_add(part.strides[axis], part.count);
  return part;
}

std::optional<int> GroupLayout::level_of(const Region& region) const {
  const auto found = std::ranges::find(slices, region);
  if (found == slices.end()) return std::nullopt;
  return static_cast<int>(found - slices.begin());
}

Layouts::Layouts(const Program& program, const ProgramIndex& index, FindingList& findings)
    : homes(program.buffers.size()), program_(&program), index_(&index) {
  std::vector<std::vector<std::uint32_t>> of_unit(program.units.size());
  for (const Group& group : program.groups) {
    lay_out(group, findings);
    if (const auto unit = index.units.find(group.unit))
      of_unit[*unit].push_back(static_cast<std::uint32_t>(groups.size() - 1));
  }
  for (const auto& list : of_unit) check_unit(list, findings);
  check_optimizers(findings);
  const IdIndex<GroupId> positions(program.groups);
  for (std::size_t b = 0; b < program.buffers.size(); ++b) find_home(b, positions, findings);
}

void Layouts::lay_out(const Group& group, FindingList& findings) {
  GroupLayout layout;
  layout.group = &group;
  const auto unit = index_->units.find(group.unit);
  layout.name = unit ? program_->units[*unit].name : "?";
  if (!group.requires_grad) layout.name += " (frozen)";
  const PlanConfig& config = program_->config;
  const DType wanted = group.fp8 ? config.main_dtype : config.param_dtype;
  if (group.dtype != wanted)
    report(findings, "MF502",
           fmt::format("group '{}' has dtype {}; the configuration has {}", layout.name,
                       to_string(group.dtype), to_string(wanted)));
  const std::int64_t block = unit ? program_->units[*unit].position - 1 : -1;
  const bool in_block = unit && program_->units[*unit].kind == UnitKind::block;
  for (const PlacedParameter& parameter : group.parameters)
    if (group.fp8 != (in_block && config.gathers_fp8(block, parameter.role)))
      report(findings, "MF502",
             fmt::format("group '{}': the weights of '{}' are {}, contrary to the configuration",
                         layout.name, parameter.name,
                         group.fp8 ? "gathered as casts to FP8" : "not gathered as casts to FP8"));
  const Mesh& mesh = program_->config.mesh;
  Int128 parts = 1;
  for (const Axis axis : with_several_ranks(group.cut, mesh)) parts *= mesh.size(axis);
  layout.slices = {Region{.count = group.elements}};
  if (group.elements < 1 || group.elements % parts != 0) {
    report(findings, "MF501",
           fmt::format("group '{}' has {} elements, which do not make {} equal shards", layout.name,
                       group.elements, static_cast<std::int64_t>(parts)));
  } else {
    layout.atoms = atoms_of_group(group, layout.name, findings);
    layout.sound = !layout.atoms.empty();
    for (const Axis axis : with_several_ranks(group.cut, mesh))
      layout.slices.push_back(part_of(layout.slices.back(), axis, mesh));
  }
  if (!sums_all_tokens(group, mesh))
    report(findings, "MF303",
           fmt::format("group '{}' sums its gradient over other axes than those whose ranks have "
                       "different tokens and the same parameters",
                       layout.name));
  levels = std::max(levels, layout.levels());
  groups.push_back(std::move(layout));
}

void Layouts::check_unit(std::span<const std::uint32_t> of_unit, FindingList& findings) const {
  std::vector<std::string_view> names;
  for (const std::uint32_t g : of_unit)
    if (groups[g].sound)
      for (const PlacedParameter& parameter : groups[g].group->parameters)
        names.push_back(parameter.name);
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end())
    report(findings, "MF502",
           fmt::format("unit '{}': parameter '{}' is in two of its groups", groups[of_unit[0]].name,
                       *twice));
}

/// With Muon the matrices of blocks are orthogonalised, and nothing else is.
void Layouts::check_optimizers(FindingList& findings) const {
  if (!orthogonalises(program_->config.optimizer)) return;
  for (const GroupLayout& layout : groups) {
    if (!layout.group->optimizer) continue;
    const auto unit = index_->units.find(layout.group->unit);
    const bool in_block = unit && program_->units[*unit].kind == UnitKind::block;
    for (const PlacedParameter& parameter : layout.group->parameters)
      if ((in_block && parameter.shape.size() == 2) != orthogonalises(*layout.group->optimizer))
        report(findings, "MF502",
               fmt::format("group '{}': {} does not update '{}' with --optimizer {}", layout.name,
                           to_string(*layout.group->optimizer), parameter.name,
                           to_string(program_->config.optimizer)));
  }
}

void Layouts::find_home(std::size_t b, const IdIndex<GroupId>& positions, FindingList& findings) {
  const Buffer& buffer = program_->buffers[b];
  Home home{.holds = holds_of(buffer)};
  if (home.holds == Holds::other) return;
  home.casts = buffer.holds->kind == ContentKind::cast_parameter;
  home.block = block_of_state(buffer.holds->state);
  if (home.holds == Holds::direction) home.distributed_over = buffer.holds->dealt;
  if (home.holds == Holds::gradient) home.unsummed_over = buffer.holds->dealt;
  for (const auto& [group, offset] : buffer.holds->groups) {
    const auto position = positions.find(group);
    if (!position || !groups[*position].sound) return;
    home.groups.push_back(static_cast<std::uint32_t>(*position));
    home.offsets.push_back(offset);
  }
  if (home.groups.empty()) return;
  const auto level =
      level_of(buffer.holds->placement, *groups[home.groups[0]].group, program_->config.mesh);
  home.level = level.value_or(0);
  if (std::string fault = level ? fault_of(buffer, home)
                                : fmt::format("has a placement that is not a shard of group '{}'",
                                              groups[home.groups[0]].name);
      !fault.empty())
    return report(findings, "MF503", fmt::format("buffer '{}' {}", buffer.name, fault), buffer.id);
  std::vector<std::pair<std::int64_t, std::int64_t>> bytes;
  const auto count = [&](std::uint32_t g) {
    return groups[g].slices[static_cast<std::size_t>(home.level)].count;
  };
  for (std::size_t i = 0;
       !home.distributed_over && home.groups.size() > 1 && i < home.groups.size(); ++i)
    bytes.emplace_back(
        home.offsets[i],
        checked_add(home.offsets[i], bytes_of(count(home.groups[i]), buffer.dtype).value));
  std::ranges::sort(bytes);
  for (std::size_t i = 1; i < bytes.size(); ++i)
    if (bytes[i].first < bytes[i - 1].second)
      return report(
          findings, "MF502",
          fmt::format("buffer '{}': a group begins at byte {}, but another one ends at {}",
                      buffer.name, bytes[i].first, bytes[i - 1].second),
          buffer.id);
  homes[b] = std::move(home);
}

/// A message where a buffer does not hold shards of the stated level; else empty.
std::string Layouts::fault_of(const Buffer& buffer, const Home& home) const {
  const Mesh& mesh = program_->config.mesh;
  for (std::size_t i = 0; i < home.groups.size(); ++i) {
    const GroupLayout& layout = groups[home.groups[i]];
    if (level_of(buffer.holds->placement, *layout.group, mesh) != home.level)
      return fmt::format("holds groups that are sharded over different axes, such as '{}'",
                         layout.name);
    if (home.casts && !layout.group->fp8)
      return fmt::format("holds casts of group '{}', which is not in FP8", layout.name);
    if (buffer.persistent && !home.casts &&
        level_of(placement_of(*layout.group, home.holds), *layout.group, mesh) != home.level)
      return fmt::format("keeps another shard of group '{}' than the group states", layout.name);
    const std::int64_t count = layout.slices[static_cast<std::size_t>(home.level)].count;
    if (count % home.block != 0)
      return fmt::format("has one value for {} elements of group '{}', but a shard has {} elements",
                         home.block, layout.name, count);
    const std::int64_t parts = home.unsummed_over ? mesh.size(*home.unsummed_over) : 1;
    const Int128 end = Int128{count / home.block} * parts * size_of(buffer.dtype) + home.offsets[i];
    // Gathered weights may be padded, and directions may come after others.
    const bool gathered =
        (home.holds == Holds::weight && !buffer.persistent) || home.holds == Holds::direction;
    if (gathered ? end > buffer.size.value : end != buffer.size.value)
      return fmt::format(
          "has {} bytes, which is not the size of {} elements of group '{}' from byte {}",
          buffer.size.value, count, layout.name, home.offsets[i]);
    if (home.holds != Holds::weight && !layout.group->requires_grad)
      return fmt::format("holds a gradient or an optimizer state of group '{}', which is frozen",
                         layout.name);
  }
  if (home.unsummed_over) return fault_of_unsummed(buffer, home);
  return home.holds == Holds::direction ? fault_of_directions(buffer, home) : "";
}

/// A buffer that is not summed over ranks holds contributions to one shard of one group, within a
/// step.
std::string Layouts::fault_of_unsummed(const Buffer& buffer, const Home& home) const {
  const std::vector<Axis> cut =
      with_several_ranks(groups[home.groups.front()].group->cut, program_->config.mesh);
  const bool cut_last =
      home.level > 0 && cut[static_cast<std::size_t>(home.level) - 1] == *home.unsummed_over;
  if (cut_last && !buffer.persistent && home.groups.size() == 1) return {};
  return fmt::format(
      "holds contributions of each rank of {}; expected those to one shard over that axis, in a "
      "buffer that lives within a step",
      to_string(*home.unsummed_over));
}

/// Directions have the configured dtype and belong to groups that are orthogonalised. Groups that
/// are distributed over ranks have equal layouts, as each rank holds one of them at one address.
std::string Layouts::fault_of_directions(const Buffer& buffer, const Home& home) const {
  if (buffer.persistent || buffer.dtype != program_->config.direction_dtype())
    return "holds update directions in another dtype than configured, or for more than a step";
  const GroupLayout& first = groups[home.groups.front()];
  const auto is_alike = [&](const GroupLayout& other) {
    return other.group->elements == first.group->elements && other.slices == first.slices &&
           std::ranges::equal(other.atoms, first.atoms, [](const Atom& a, const Atom& b) {
             return a.begin == b.begin && a.end == b.end &&
                    (a.parameter == nullptr) == (b.parameter == nullptr) &&
                    (a.parameter == nullptr || (a.parameter->role == b.parameter->role &&
                                                a.parameter->shape == b.parameter->shape));
           });
  };
  for (std::size_t i = 0; i < home.groups.size(); ++i) {
    const GroupLayout& layout = groups[home.groups[i]];
    const std::optional<Optimizer>& optimizer = layout.group->optimizer;
    if (!optimizer || !orthogonalises(*optimizer))
      return fmt::format("holds update directions of group '{}', whose optimizer has none",
                         layout.name);
    if (std::ranges::count(home.groups, home.groups[i]) > 1)
      return fmt::format("holds update directions of group '{}' twice", layout.name);
    if (home.distributed_over && (home.offsets[i] != 0 || home.level != 0 || !is_alike(layout)))
      return fmt::format(
          "distributes group '{}' over ranks, but its layout differs from the first group's",
          layout.name);
  }
  const Int128 end = Int128{first.group->elements} * size_of(buffer.dtype);
  if (home.distributed_over &&
      (std::ssize(home.groups) > program_->config.mesh.size(*home.distributed_over) ||
       buffer.size.value != end))
    return "distributes more groups than there are ranks, or does not have the size of one group";
  return {};
}

std::optional<Located> Layouts::locate(const Operand& operand) const {
  const auto b = static_cast<std::uint32_t>(index_->buffers[operand.buffer]);
  const Home& home = homes[b];
  if (home.holds == Holds::other) return std::nullopt;
  const Buffer& buffer = program_->buffers[b];
  std::size_t held = 0;  // the last group that begins at or before the operand
  for (std::size_t i = 1; i < home.groups.size(); ++i) {
    const bool holds_begin = home.offsets[i] <= operand.offset;
    if (holds_begin &&
        (home.offsets[held] > operand.offset || home.offsets[i] >= home.offsets[held]))
      held = i;
  }
  const std::uint32_t g = home.groups[held];
  const std::int64_t offset = checked_sub(operand.offset, home.offsets[held]);
  const std::int64_t size = size_of(buffer.dtype);
  Located located{
      .buffer = b,
      .group = g,
      .region = groups[g].slices[static_cast<std::size_t>(home.level)],
      .exact = operand.dtype == buffer.dtype && is_contiguous(operand) && offset % size == 0};
  located.region.begin = checked_mul(offset / size, home.block);
  located.region.count = checked_mul(operand.elements(), home.block);
  if (home.unsummed_over) {
    located.exact = located.exact && operand.touched_bytes() == buffer.size.value;
    located.region.count /= program_->config.mesh.size(*home.unsummed_over);
  }
  for (const RankStride& stride : operand.rank_strides) {
    if (program_->config.mesh.size(stride.axis) == 1) continue;
    std::int64_t& elements = located.region.strides[stride.axis];
    elements = checked_add(elements, checked_mul(stride.bytes / size, home.block));
    located.exact = located.exact && stride.bytes % size == 0;
  }
  return located;
}

std::optional<AtomRange> Layouts::atoms_of(std::uint32_t group, const Region& region) const {
  const std::vector<Atom>& atoms = groups[group].atoms;
  if (!region.is_on_all_ranks()) return std::nullopt;
  const auto first = std::ranges::lower_bound(atoms, region.begin, {}, &Atom::begin);
  if (first == atoms.end() || first->begin != region.begin) return std::nullopt;
  const std::int64_t end = checked_add(region.begin, region.count);
  auto last = first;
  while (last != atoms.end() && last->end < end) ++last;
  if (last == atoms.end() || last->end != end) return std::nullopt;
  return AtomRange{.first = static_cast<std::uint32_t>(first - atoms.begin()),
                   .last = static_cast<std::uint32_t>(last - atoms.begin() + 1)};
}

namespace {

/// Groups in FP8 have no other weights.
bool holds_main_weights(const Program& program, const Contents& contents) {
  return std::ranges::any_of(program.groups, [&](const Group& group) {
    return group.fp8 &&
           std::ranges::find(contents.groups, group.id, &HeldGroup::group) != contents.groups.end();
  });
}

}  // namespace

void check_configured_dtypes(const Program& program, FindingList& findings) {
  const PlanConfig& config = program.config;
  for (const Buffer& buffer : program.buffers) {
    if (!buffer.holds) continue;
    std::optional<DType> wanted;  // of states and directions updates.cpp looks
    bool sums = false;
    switch (buffer.holds->kind) {
      case ContentKind::cast_parameter: wanted = DType::fp8_e4m3; break;
      case ContentKind::parameter:
        wanted =
            holds_main_weights(program, *buffer.holds) ? config.main_dtype : config.param_dtype;
        break;
      case ContentKind::main_parameter: wanted = config.main_dtype; break;
      case ContentKind::gradient:
        wanted = buffer.persistent ? config.grad_dtype : config.reduce_dtype;
        sums = true;
        break;
      default: break;
    }
    const bool too_narrow = sums && size_of(buffer.dtype) < size_of(*wanted);  // MF310
    if (wanted && buffer.dtype != *wanted && !too_narrow)
      report(findings, "MF502",
             fmt::format("buffer '{}' has dtype {}; the configuration has {}", buffer.name,
                         to_string(buffer.dtype), to_string(*wanted)),
             buffer.id);
  }
}

std::string to_text(const Region& region) {
  std::string text = fmt::format("{} elements from {}", region.count, region.begin);
  for (std::size_t i = 0; i < region.strides.values.size(); ++i)
    if (const std::int64_t stride = region.strides.values[i]; stride != 0)
      text += fmt::format(" + {} per {}", stride, to_string(static_cast<Axis>(i)));
  return text;
}

}  // namespace mfsdp
