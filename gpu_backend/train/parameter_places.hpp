// Where each parameter's weights, moments and gradients lie on one rank: which of its elements,
// and at which address. What initial weights, norms and checkpoints walk over.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/shard/flat_layout.hpp"

namespace mfsdp {

/// A run of a parameter's elements in one of the rank's buffers.
struct HeldElements {
  Interval elements;  ///< of the parameter, from its first one; empty where the rank holds none
  DType dtype = DType::fp32;
  std::byte* data = nullptr;  ///< of elements.begin; null where there are none
};

struct ParameterPlaces {
  const Group* group = nullptr;
  const PlacedParameter* parameter = nullptr;
  bool first_replica = false;  ///< no lower rank updates the same elements
  HeldElements weight;         ///< what is computed with: under HSDP and below ZeRO-3 more than own
  /// The weights that the optimizer updates: main weights or, where the plan has none or the
  /// parameter is frozen, their part of `weight`. `own.elements` are this rank's own.
  HeldElements own;
  HeldElements gradient;                ///< own elements; after a step the sum over all ranks
  std::array<HeldElements, 2> moments;  ///< own elements; of AdamW, first and second
};

/// The buffers of one group's state.
struct GroupBuffers {
  const Buffer* weight = nullptr;
  const Buffer* main_weight = nullptr;  ///< null where the plan has none, as what follows
  const Buffer* gradient = nullptr;
  std::array<const Buffer*, 2> moments = {};
};

/// Found by unit and category, in the order in which a unit's groups have theirs. Errors: a buffer
/// that is missing or has another size than the strategy says.
[[nodiscard]] Result<GroupBuffers> find_group_buffers(const Program& program, const Group& group);

/// Where a buffer's bytes lie on the rank.
using BufferBytes = std::function<std::span<std::byte>(BufferId)>;

/// All parameters in the order of the program's groups. `program` outlives the result.
[[nodiscard]] Result<std::vector<ParameterPlaces>> find_parameters(const Program& program,
                                                                   const BufferBytes& bytes,
                                                                   std::int64_t rank);

}  // namespace mfsdp
