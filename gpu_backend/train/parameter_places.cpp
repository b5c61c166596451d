#include "gpu_backend/train/parameter_places.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/plan/job.hpp"
#include "core/shard/groups.hpp"

namespace mfsdp {
namespace {

std::vector<KeptState> states_of(const Program& program, const Group& group) {
  if (!group.optimizer) return {};
  return program.config.kept_states(*group.optimizer);
}

GroupBuffer find_buffer(const Program& program, const Group& group, ContentKind kind,
                        std::string_view state = {}) {
  for (const Buffer& buffer : program.buffers) {
    if (!buffer.persistent || !buffer.holds) continue;
    const Contents& holds = *buffer.holds;
    if (holds.kind != kind || holds.state != state) continue;
    const auto held = std::ranges::find(holds.groups, group.id, &HeldGroup::group);
    if (held != holds.groups.end())
      return {.buffer = &buffer,
              .placement = holds.placement,
              .offset = held->offset,
              .block = block_of_state(state)};
  }
  return {};
}

Result<void> check(const Program& program, const Group& group, const GroupBuffer& found,
                   std::string_view what, bool needed) {
  const auto where = [&] { return fmt::format("plan, group {}, {}", group.id.value, what); };
  if (found.buffer == nullptr) {
    if (needed) return fail(where(), "there is no such buffer");
    return {};
  }
  const std::int64_t elements =
      interval_of(group.elements, found.placement, program.config.mesh, 0).size();
  const Bytes expected =
      Bytes(found.offset) + bytes_of(ceil_div(elements, found.block), found.buffer->dtype);
  if (found.buffer->size != expected)
    return fail(where(), fmt::format("expected a buffer of {} bytes, got {}", expected.value,
                                     found.buffer->size.value));
  return {};
}

/// Finds the places of a parameter's elements on one rank.
class PlacesOnRank {
 public:
  PlacesOnRank(const Mesh& mesh, const BufferBytes& bytes, std::int64_t rank)
      : mesh_(mesh), bytes_(bytes), rank_(rank) {}

  [[nodiscard]] Interval held_by(const Group& group, const Placement& placement) const {
    return interval_of(group.elements, placement, mesh_, rank_);
  }

  /// The elements of a parameter that a buffer holds, limited to `wanted`, in elements of the
  /// group.
  [[nodiscard]] HeldElements of(const PlacedParameter& parameter, const Group& group,
                                const GroupBuffer& found, const Interval& wanted) const {
    if (found.buffer == nullptr) return {};
    const std::int64_t begin = std::max(parameter.offset, wanted.begin);
    const std::int64_t end = std::min(parameter.offset + parameter.elements(), wanted.end);
    const DType dtype = found.buffer->dtype;
    if (begin >= end) return {.elements = {}, .dtype = dtype, .data = nullptr};
    const std::int64_t first = held_by(group, found.placement).begin;
    // Blocks begin at the beginnings of parameters and shards: only a parameter's last block may be
    // cut.
    const std::int64_t block = found.block;
    // This also holds if ranks share a parameter, except for scales of a part with an incomplete
    // block.
    const std::int64_t blocks_before =
        shard_of(group.shard, mesh_, rank_) * ceil_div(parameter.elements(), block);
    return {.elements = {.begin = blocks_before + (begin - parameter.offset) / block,
                         .end = blocks_before + ceil_div(end - parameter.offset, block)},
            .dtype = dtype,
            .data = bytes_(found.buffer->id).data() + found.offset +
                    (begin - first) / block * size_of(dtype)};
  }

 private:
  const Mesh& mesh_;
  const BufferBytes& bytes_;
  std::int64_t rank_;
};

/// Whether a lower rank, maybe of another class, updates the rank's elements of the group.
bool lower_rank_updates(std::span<const Program> programs,
                        const std::vector<std::uint32_t>& classes, const Group& group,
                        std::int64_t rank) {
  const Mesh& mesh = programs.front().config.mesh;
  const auto part_of = [&](std::int64_t r) {
    return std::pair(shard_of(group.shard, mesh, r),
                     interval_of(group.elements, group.state, mesh, r));
  };
  std::vector<char> holds;  // by class
  for (const Program& program : programs) holds.push_back(holds_group(program, group) ? 1 : 0);
  for (std::int64_t lower = 0; lower < rank; ++lower)
    if (holds[classes[static_cast<std::size_t>(lower)]] != 0 && part_of(lower) == part_of(rank))
      return true;
  return false;
}

/// The plan's own object if it already describes the whole parameter.
std::shared_ptr<const PlacedParameter> whole_of(const PlacedParameter& parameter,
                                                const Group& group, const Mesh& mesh) {
  if (group.shard.empty()) return {std::shared_ptr<void>(), &parameter};
  return std::make_shared<const PlacedParameter>(whole_parameter(parameter, group, mesh));
}

}  // namespace

Result<GroupBuffers> find_group_buffers(const Program& program, const Group& group) {
  const auto find = [&](ContentKind kind, std::string_view state = {}) {
    return find_buffer(program, group, kind, state);
  };
  if (std::ranges::find(group.shard, Axis::tp, &AxisPlacement::axis) != group.shard.end())
    return fail(fmt::format("plan, group {}, shard", group.id.value),
                "parameters that are cut along tp cannot be filled or saved yet");
  GroupBuffers buffers{.weight = find(ContentKind::parameter),
                       .main_weight = find(ContentKind::main_parameter),
                       .gradient = find(ContentKind::gradient)};
  const std::vector<KeptState> kept = states_of(program, group);
  for (const KeptState& state : kept)
    buffers.states.push_back(find(ContentKind::optimizer_state, state.name));
  const PlanConfig& config = program.config;
  const bool trains = group.requires_grad;
  MFSDP_TRY(check(program, group, buffers.weight, "weights", true));
  MFSDP_TRY(check(program, group, buffers.main_weight, "main weights",
                  trains && config.main_dtype != group.dtype));
  MFSDP_TRY(check(program, group, buffers.gradient, "gradient", trains));
  for (std::size_t i = 0; i < buffers.states.size(); ++i)
    MFSDP_TRY(check(program, group, buffers.states[i], kept[i].name, true));
  return buffers;
}

bool holds_group(const Program& program, const Group& group) {
  return find_buffer(program, group, ContentKind::parameter).buffer != nullptr;
}

Result<std::vector<ParameterPlaces>> find_parameters(std::span<const Program> programs,
                                                     const BufferBytes& bytes, std::int64_t rank) {
  const std::vector<std::uint32_t> classes = class_of_ranks(programs);
  const Program& program = programs[classes[static_cast<std::size_t>(rank)]];
  const Mesh& mesh = program.config.mesh;
  const PlacesOnRank places(mesh, bytes, rank);
  std::vector<ParameterPlaces> all;
  for (const Group& group : program.groups) {
    const auto holds = [&](const Program& of_class) { return holds_group(of_class, group); };
    if (!holds(program) && std::ranges::any_of(programs, holds)) {
      for (const PlacedParameter& parameter : group.parameters)
        all.push_back({.group = &group,
                       .parameter = whole_of(parameter, group, mesh),
                       .weight = {},
                       .own = {},
                       .gradient = {}});
      continue;
    }
    MFSDP_LET(buffers, find_group_buffers(program, group));
    const bool first_replica = programs.size() == 1
                                   ? is_first_replica(group, mesh, rank)
                                   : !lower_rank_updates(programs, classes, group, rank);
    const Interval own = places.held_by(group, group.state);
    const Interval weights = places.held_by(group, buffers.weight.placement);
    const bool has_main = buffers.main_weight.buffer != nullptr;
    for (const PlacedParameter& parameter : group.parameters) {
      const auto held = [&](const GroupBuffer& buffer, const Interval& wanted) {
        return places.of(parameter, group, buffer, wanted);
      };
      all.push_back({.group = &group,
                     .parameter = whole_of(parameter, group, mesh),
                     .first_replica = first_replica,
                     .weight = held(buffers.weight, weights),
                     .own = held(has_main ? buffers.main_weight : buffers.weight, own),
                     .gradient = held(buffers.gradient, own)});
      for (const GroupBuffer& state : buffers.states) all.back().states.push_back(held(state, own));
    }
  }
  return all;
}

}  // namespace mfsdp
