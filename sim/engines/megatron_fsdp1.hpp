// A step of Megatron-FSDP's first version (megatron_fsdp.fully_shard_model), as its host issues it.
#pragma once

#include "sim/engines/elementwise.hpp"
#include "sim/engines/engine_plan.hpp"

namespace mfsdp {

/// The step of a configuration from engine_config(). With AllocatorPolicy::double_buffer, weights
/// and gradients of blocks have two kept buffers each (fsdp_double_buffer).
[[nodiscard]] EnginePlan megatron_fsdp1_plan(const PlanConfig& config, const Meta& meta,
                                             CompileCache cache = CompileCache::filled,
                                             std::int64_t l2_bytes = kL2OfH200);

}  // namespace mfsdp
