#include "gpu_backend/train/parameter_places.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/shard/groups.hpp"

namespace mfsdp {
namespace {

/// The unit's nth persistent buffer of a category, or null.
const Buffer* find_buffer(const Program& program, UnitId unit, Category category, std::size_t nth) {
  for (const Buffer& buffer : program.buffers)
    if (buffer.persistent && buffer.unit == unit && buffer.category == category && nth-- == 0)
      return &buffer;
  return nullptr;
}

Result<void> check_size(const Program& program, const Group& group, const Buffer* buffer,
                        Category category, std::int64_t elements) {
  const auto where = [&] {
    return fmt::format("plan, unit {}, {} of group {}", program.units[group.unit.value].name,
                       to_string(category), group.id.value);
  };
  if (elements == 0) return {};
  if (buffer == nullptr) return fail(where(), "there is no such buffer");
  if (const Bytes expected = bytes_of(elements, buffer->dtype); buffer->size != expected)
    return fail(where(), fmt::format("expected a buffer of {} bytes, got {}", expected.value,
                                     buffer->size.value));
  return {};
}

/// What of [offset, offset + count) lies in `held`, which a buffer holds from its first byte on;
/// of that only what is in `wanted`. All in elements of the group.
HeldElements hold(const PlacedParameter& parameter, const Buffer* buffer, const Interval& held,
                  const Interval& wanted, const BufferBytes& bytes) {
  if (buffer == nullptr) return {};
  const std::int64_t begin = std::max(parameter.offset, wanted.begin);
  const std::int64_t end = std::min(parameter.offset + parameter.elements(), wanted.end);
  if (begin >= end) return {.elements = {}, .dtype = buffer->dtype, .data = nullptr};
  return {.elements = {.begin = begin - parameter.offset, .end = end - parameter.offset},
          .dtype = buffer->dtype,
          .data = bytes(buffer->id).data() + (begin - held.begin) * size_of(buffer->dtype)};
}

}  // namespace

Result<GroupBuffers> find_group_buffers(const Program& program, const Group& group) {
  std::size_t before = 0;  // groups of the same unit
  for (const Group& other : program.groups) {
    if (other.id == group.id) break;
    if (other.unit == group.unit) ++before;
  }
  const ResidentElements resident = resident_elements(group, program.config);
  const auto find = [&](Category category, std::size_t nth) {
    return find_buffer(program, group.unit, category, nth);
  };
  GroupBuffers buffers{.weight = find(Category::model_weight, before)};
  MFSDP_TRY(
      check_size(program, group, buffers.weight, Category::model_weight, resident.model_weight));
  if (!group.requires_grad) return buffers;  // a unit has one group with state beside weights
  const auto take = [&](const Buffer*& into, Category category, std::size_t nth,
                        std::int64_t elements) -> Result<void> {
    if (elements > 0) into = find(category, nth);
    return check_size(program, group, into, category, elements);
  };
  MFSDP_TRY(take(buffers.main_weight, Category::main_weight, 0, resident.main_weight));
  MFSDP_TRY(take(buffers.gradient, Category::main_grad, 0, resident.main_grad));
  for (std::size_t i = 0; i < buffers.moments.size(); ++i)
    MFSDP_TRY(take(buffers.moments[i], Category::optimizer_state, i, resident.optimizer_state / 2));
  return buffers;
}

Result<std::vector<ParameterPlaces>> find_parameters(const Program& program,
                                                     const BufferBytes& bytes, std::int64_t rank) {
  std::vector<ParameterPlaces> all;
  for (const Group& group : program.groups) {
    MFSDP_LET(buffers, find_group_buffers(program, group));
    const ResidentIntervals resident = resident_intervals(group, program.config, rank);
    const Interval& own = resident.update;
    for (const PlacedParameter& parameter : group.parameters) {
      const auto held = [&](const Buffer* buffer, const Interval& in_buffer,
                            const Interval& wanted) {
        return hold(parameter, buffer, in_buffer, wanted, bytes);
      };
      all.push_back(
          {.group = &group,
           .parameter = &parameter,
           .first_replica = is_first_replica(program.config, rank),
           .weight = held(buffers.weight, resident.weight, resident.weight),
           .own = buffers.main_weight != nullptr ? held(buffers.main_weight, own, own)
                                                 : held(buffers.weight, resident.weight, own),
           .gradient = held(buffers.gradient, resident.gradient, own),
           .moments = {held(buffers.moments[0], own, own), held(buffers.moments[1], own, own)}});
    }
  }
  return all;
}

}  // namespace mfsdp
