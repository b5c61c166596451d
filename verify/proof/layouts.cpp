#include "verify/proof/layouts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "verify/proof/overlap.hpp"

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
      return wrong(parameter, "has a negative dim");
    const std::int64_t end = checked_add(parameter.offset, parameter.elements());
    if (parameter.offset < 0 || end > group.elements)
      return wrong(parameter, fmt::format("is at elements [{}, {}) of {}", parameter.offset, end,
                                          group.elements));
    if (end > parameter.offset) atoms.push_back({parameter.offset, end, &parameter});
  }
  std::ranges::sort(atoms, {}, &Atom::begin);
  std::vector<Atom> all;
  std::int64_t covered = 0;
  for (const Atom& atom : atoms) {
    if (atom.begin < covered)
      return wrong(*atom.parameter,
                   fmt::format("begins at element {}, where another one reaches to {}", atom.begin,
                               covered));
    if (atom.begin > covered) all.push_back({covered, atom.begin, nullptr});
    all.push_back(atom);
    covered = atom.end;
  }
  if (covered < group.elements) all.push_back({covered, group.elements, nullptr});
  return all;
}

std::int64_t stride_of(const Operand& operand, Axis axis) {
  std::int64_t bytes = 0;
  for (const RankStride& stride : operand.rank_strides)
    if (stride.axis == axis) bytes = checked_add(bytes, stride.bytes);
  return bytes;
}

}  // namespace

Region part_of(const Region& whole, Axis axis, const Mesh& mesh) {
  const std::int64_t ranks = axis == Axis::dp_shard ? mesh.dp_shard : mesh.dp_outer;
  Region part = whole;
  part.count = whole.count / ranks;
  std::int64_t& stride = axis == Axis::dp_shard ? part.shard_stride : part.outer_stride;
  if (ranks > 1) stride = checked_add(stride, part.count);
  return part;
}

std::optional<int> GroupLayout::level_of(const Region& region) const {
  for (int level = 0; level < kLevels; ++level)
    if (slices[static_cast<std::size_t>(level)] == region) return level;
  return std::nullopt;
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
  // Per unit, how many buffers of a kind went by.
  std::vector<std::array<std::uint32_t, 3>> seen(program.units.size());
  for (std::size_t b = 0; b < program.buffers.size(); ++b)
    if (const auto& unit = program.buffers[b].unit)
      if (const auto position = index.units.find(*unit))
        find_home(b, of_unit[*position], seen, findings);
}

void Layouts::lay_out(const Group& group, FindingList& findings) {
  GroupLayout layout;
  layout.group = &group;
  const auto unit = index_->units.find(group.unit);
  layout.name = unit ? program_->units[*unit].name : "?";
  if (!group.requires_grad) layout.name += " (frozen)";
  const Mesh& mesh = program_->config.mesh;
  const std::int64_t shard = group.elements / mesh.dp_shard;
  const std::int64_t part = shard / mesh.dp_outer;
  if (group.elements < 1 || group.elements % mesh.dp_shard != 0) {
    report(findings, "MF501",
           fmt::format("group '{}': {} elements are not {} equal slices of at least one",
                       layout.name, group.elements, mesh.dp_shard));
  } else {
    layout.atoms = atoms_of_group(group, layout.name, findings);
    layout.sound = !layout.atoms.empty();
    const std::int64_t shard_stride = mesh.dp_shard > 1 ? shard : 0;
    layout.slices = {Region{.count = group.elements},
                     Region{.shard_stride = shard_stride, .count = shard},
                     Region{.shard_stride = shard_stride,
                            .outer_stride = mesh.dp_outer > 1 ? part : 0,
                            .count = part}};
    // Parts that do not make up the slice are no slice at all.
    if (part * mesh.dp_outer != shard) layout.slices[2] = layout.slices[1];
  }
  groups.push_back(std::move(layout));
}

void Layouts::check_unit(std::span<const std::uint32_t> of_unit, FindingList& findings) const {
  std::vector<std::string_view> names;
  std::vector<std::pair<std::int64_t, std::int64_t>> bytes;
  for (const std::uint32_t g : of_unit) {
    const Group& group = *groups[g].group;
    if (!groups[g].sound) continue;
    for (const PlacedParameter& parameter : group.parameters) names.push_back(parameter.name);
    bytes.emplace_back(group.full_offset,
                       checked_add(group.full_offset, bytes_of(group.elements, group.dtype).value));
  }
  std::ranges::sort(names);
  const auto twice = std::ranges::adjacent_find(names);
  if (twice != names.end())
    report(findings, "MF502",
           fmt::format("unit '{}': parameter '{}' is in its groups twice", groups[of_unit[0]].name,
                       *twice));
  std::ranges::sort(bytes);
  for (std::size_t i = 1; i < bytes.size(); ++i)
    if (bytes[i].first < bytes[i - 1].second)
      report(findings, "MF502",
             fmt::format("unit '{}': a group begins at byte {} of the gathered weights, where "
                         "another one reaches to {}",
                         groups[of_unit[0]].name, bytes[i].first, bytes[i - 1].second));
}

void Layouts::find_home(std::size_t b, std::span<const std::uint32_t> of_unit,
                        std::vector<std::array<std::uint32_t, 3>>& seen, FindingList& findings) {
  const Buffer& buffer = program_->buffers[b];
  Home home;
  bool trainable = true;
  std::optional<std::size_t> kind;  // of which the unit has one for each group
  switch (buffer.category) {
    case Category::model_weight:
      home.holds = Holds::weight;
      trainable = false;
      kind = 0;
      break;
    case Category::unsharded_weight:
      home = {.holds = Holds::weight, .groups = {of_unit.begin(), of_unit.end()}, .level = 0};
      break;
    case Category::main_grad:
      home.holds = Holds::gradient;
      kind = 1;
      break;
    case Category::unsharded_grad: home.holds = Holds::gradient; break;
    case Category::main_weight:
      home.holds = Holds::state;
      kind = 2;
      break;
    case Category::optimizer_state: home.holds = Holds::state; break;
    default: return;
  }
  if (buffer.category != Category::unsharded_weight) {
    std::uint32_t skip = kind ? seen[index_->units[*buffer.unit]][*kind]++ : 0;
    for (const std::uint32_t g : of_unit)
      if ((!trainable || groups[g].group->requires_grad) && skip-- == 0) {
        home.groups = {g};
        break;
      }
  }
  if (home.groups.empty() ||
      std::ranges::any_of(home.groups, [&](std::uint32_t g) { return !groups[g].sound; }))
    return;
  if (buffer.category != Category::unsharded_weight) {
    const GroupLayout& layout = groups[home.groups[0]];
    const std::int64_t count = buffer.size.value / size_of(buffer.dtype);
    const auto* slice = std::ranges::find(layout.slices, count, &Region::count);
    if (slice == layout.slices.end()) {
      report(findings, "MF503",
             fmt::format("buffer '{}' holds {} elements, which is no slice of the {} of group '{}'",
                         buffer.name, count, layout.group->elements, layout.name),
             buffer.id);
      return;
    }
    home.level = static_cast<int>(slice - layout.slices.begin());
  }
  homes[b] = std::move(home);
}

std::optional<Located> Layouts::locate(const Operand& operand) const {
  const auto b = static_cast<std::uint32_t>(index_->buffers[operand.buffer]);
  const Home& home = homes[b];
  if (home.holds == Holds::other) return std::nullopt;
  const Buffer& buffer = program_->buffers[b];
  std::int64_t offset = operand.offset;
  std::uint32_t g = home.groups[0];
  if (buffer.category == Category::unsharded_weight) {
    for (const std::uint32_t other : home.groups)
      if (groups[other].group->full_offset <= operand.offset &&
          groups[other].group->full_offset >= groups[g].group->full_offset)
        g = other;
    offset = checked_sub(offset, groups[g].group->full_offset);
  }
  const Mesh& mesh = program_->config.mesh;
  const std::int64_t size = size_of(buffer.dtype);
  const Region& origin = groups[g].slices[static_cast<std::size_t>(home.level)];
  const std::int64_t shard = mesh.dp_shard > 1 ? stride_of(operand, Axis::dp_shard) : 0;
  const std::int64_t outer = mesh.dp_outer > 1 ? stride_of(operand, Axis::dp_outer) : 0;
  return Located{.buffer = b,
                 .group = g,
                 .region = {.begin = offset / size,
                            .shard_stride = checked_add(origin.shard_stride, shard / size),
                            .outer_stride = checked_add(origin.outer_stride, outer / size),
                            .count = operand.elements()},
                 .exact = operand.dtype == buffer.dtype && is_contiguous(operand) &&
                          offset % size == 0 && shard % size == 0 && outer % size == 0};
}

std::optional<AtomRange> Layouts::atoms_of(std::uint32_t group, const Region& region) const {
  const std::vector<Atom>& atoms = groups[group].atoms;
  if (region.shard_stride != 0 || region.outer_stride != 0) return std::nullopt;
  const auto first = std::ranges::lower_bound(atoms, region.begin, {}, &Atom::begin);
  if (first == atoms.end() || first->begin != region.begin) return std::nullopt;
  const std::int64_t end = checked_add(region.begin, region.count);
  auto last = first;
  while (last != atoms.end() && last->end < end) ++last;
  if (last == atoms.end() || last->end != end) return std::nullopt;
  return AtomRange{.first = static_cast<std::uint32_t>(first - atoms.begin()),
                   .last = static_cast<std::uint32_t>(last - atoms.begin() + 1)};
}

std::string to_text(const Region& region) {
  std::string text = fmt::format("{} elements from {}", region.count, region.begin);
  if (region.shard_stride != 0) text += fmt::format(" + {} per dp_shard", region.shard_stride);
  if (region.outer_stride != 0) text += fmt::format(" + {} per dp_outer", region.outer_stride);
  return text;
}

}  // namespace mfsdp
