// Weights that are cast in shards and then gathered: once in each run of a plan, all ranks with the
// scale of the whole weight. A cast has the largest magnitude of all shards.
//
//   amax of each shard --all_reduce, max--> amax of the weight     fp8 shard, scale: of shard and amax
#pragma once

#include "verify/checker/step_state.hpp"

namespace mfsdp::checker {

/// Whether a kernel takes the largest magnitude of a shard of such a weight, or casts it.
[[nodiscard]] bool casts_shard(const StepState& state, const Op& op);
void cast_shard(StepState& state, const Op& op);

/// Whether an operand holds largest magnitudes of shards.
[[nodiscard]] bool has_shard_amaxes(StepState& state, const Operand& operand);
/// An all_reduce of them.
void find_largest(StepState& state, const Op& op);

}  // namespace mfsdp::checker
