// Megatron-FSDP's first version (megatron_fsdp.fully_shard_model) as its host writes a step down.
#pragma once

#include "sim/engines/elementwise.hpp"
#include "sim/engines/engine_plan.hpp"

namespace mfsdp {

/// The step of a configuration that engine_config() gave. With AllocatorPolicy::double_buffer the
/// blocks' weights and gradients have two buffers each, which are kept (fsdp_double_buffer).
[[nodiscard]] EnginePlan megatron_fsdp1_plan(const PlanConfig& config, const Meta& meta,
                                             CompileCache cache = CompileCache::filled,
                                             std::int64_t l2_bytes = kL2OfH200);

}  // namespace mfsdp
