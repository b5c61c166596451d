// The places of each parameter's weights, optimizer states and gradients on one rank: which
// elements, and at which address. Initial weights, norms and checkpoints iterate over them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/shard/element_order.hpp"
#include "core/shard/flat_layout.hpp"

namespace mfsdp {

/// Consecutive elements of a parameter in one of the rank's buffers.
struct HeldElements {
  /// Counted in the parameter's order of elements, by ranks of tp (ParameterPlaces::order); empty if
  /// the rank holds none. For scales: the values, one for each block of elements.
  Interval elements;
  DType dtype = DType::fp32;
  std::byte* data = nullptr;  ///< address of elements.begin; null if there are none
};

struct ParameterPlaces {
  const Group* group = nullptr;
  std::shared_ptr<const PlacedParameter> parameter;  ///< the whole parameter, even if ranks share
                                                     ///< it
  /// No lower rank updates the same elements. False where the rank's class does not hold the group:
  /// then all elements below are none.
  bool first_replica = false;
  HeldElements weight;  ///< compute weights: with HSDP and below ZeRO-3 more than `own`
  /// The weights that the optimizer updates: main weights or, if the plan has none or the parameter
  /// is frozen, their part of `weight`. `own.elements` are this rank's shard.
  HeldElements own;
  HeldElements gradient;                  ///< own elements; after a step, the sum over all ranks
  std::vector<HeldElements> states = {};  ///< own elements, as PlanConfig::kept_states lists them
  /// Of all intervals above; null: as the elements lie in the parameter.
  std::shared_ptr<const ElementOrder> order = {};

  /// The place in the parameter of an element of those intervals.
  [[nodiscard]] std::int64_t place_of(std::int64_t element) const {
    return order == nullptr ? element : order->place_of(element);
  }
};

/// A persistent buffer that holds elements of a group.
struct GroupBuffer {
  const Buffer* buffer = nullptr;  ///< null where the plan has none
  Placement placement;
  std::int64_t offset = 0;  ///< bytes from its start to its first element
  std::int64_t block = 1;   ///< elements that share one value in it
};

/// The buffers of one group's state.
struct GroupBuffers {
  GroupBuffer weight;
  GroupBuffer main_weight;
  GroupBuffer gradient;
  std::vector<GroupBuffer> states = {};  ///< as PlanConfig::kept_states lists them

  [[nodiscard]] std::vector<const GroupBuffer*> all() const {
    std::vector<const GroupBuffer*> list{&weight, &main_weight, &gradient};
    for (const GroupBuffer& state : states) list.push_back(&state);
    return list;
  }
};

/// Finds buffers by their contents in the plan. Errors: the plan has no buffer for a state that
/// training needs; a buffer's size differs from its placement.
[[nodiscard]] Result<GroupBuffers> find_group_buffers(const Program& program, const Group& group);

/// The bytes of a buffer on the rank.
using BufferBytes = std::function<std::span<std::byte>(BufferId)>;

/// Whether a class keeps the group: its program has a persistent buffer of its compute weights.
[[nodiscard]] bool holds_group(const Program& program, const Group& group);

/// All parameters in the order of the groups, which the programs of a job share. The program of the
/// rank's class outlives the result. Errors: those of find_group_buffers; no class holds a group.
[[nodiscard]] Result<std::vector<ParameterPlaces>> find_parameters(
    std::span<const Program> programs, const BufferBytes& bytes, std::int64_t rank);

/// The same where all ranks run one program.
[[nodiscard]] inline Result<std::vector<ParameterPlaces>> find_parameters(const Program& program,
                                                                          const BufferBytes& bytes,
                                                                          std::int64_t rank) {
  return find_parameters(std::span(&program, 1), bytes, rank);
}

}  // namespace mfsdp
