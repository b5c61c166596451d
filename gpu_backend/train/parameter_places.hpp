// Where each parameter's weights, optimizer states and gradients lie on one rank: which of its
// elements, and at which address. What initial weights, norms and checkpoints walk over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/shard/flat_layout.hpp"

namespace mfsdp {

/// A run of a parameter's elements in one of the rank's buffers.
struct HeldElements {
  /// Of the parameter, from its first one; empty where the rank holds none. Of scales the values,
  /// one for each block of elements.
  Interval elements;
  DType dtype = DType::fp32;
  std::byte* data = nullptr;  ///< of elements.begin; null where there are none
};

struct ParameterPlaces {
  const Group* group = nullptr;
  std::shared_ptr<const PlacedParameter> parameter;  ///< whole, also where ranks share it
  bool first_replica = false;                        ///< no lower rank updates the same elements
  HeldElements weight;  ///< what is computed with: under HSDP and below ZeRO-3 more than own
  /// The weights that the optimizer updates: main weights or, where the plan has none or the
  /// parameter is frozen, their part of `weight`. `own.elements` are this rank's own.
  HeldElements own;
  HeldElements gradient;             ///< own elements; after a step the sum over all ranks
  std::vector<HeldElements> states;  ///< own elements, as PlanConfig::kept_states lists them
};

/// A persistent buffer that holds elements of a group.
struct GroupBuffer {
  const Buffer* buffer = nullptr;  ///< null where the plan has none
  Placement placement;
  std::int64_t offset = 0;  ///< bytes from its start to the first element that it holds
  std::int64_t block = 1;   ///< elements that have one value in it
};

/// The buffers of one group's state.
struct GroupBuffers {
  GroupBuffer weight;
  GroupBuffer main_weight;
  GroupBuffer gradient;
  std::vector<GroupBuffer> states;  ///< as PlanConfig::kept_states lists them

  [[nodiscard]] std::vector<const GroupBuffer*> all() const {
    std::vector<const GroupBuffer*> list{&weight, &main_weight, &gradient};
    for (const GroupBuffer& state : states) list.push_back(&state);
    return list;
  }
};

/// Found by what the plan says that its buffers hold. Errors: a state that training needs and the
/// plan has no buffer for; a buffer of another size than its placement says.
[[nodiscard]] Result<GroupBuffers> find_group_buffers(const Program& program, const Group& group);

/// Where a buffer's bytes lie on the rank.
using BufferBytes = std::function<std::span<std::byte>(BufferId)>;

/// All parameters in the order of the program's groups. `program` outlives the result.
[[nodiscard]] Result<std::vector<ParameterPlaces>> find_parameters(const Program& program,
                                                                   const BufferBytes& bytes,
                                                                   std::int64_t rank);

}  // namespace mfsdp
