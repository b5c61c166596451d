// PyTorch FullyShardedDataParallel (FSDP1) of a Llama, with a flat parameter for each block and one
// for embedding, norm and head.
#pragma once

#include "core/plan/engine_options.hpp"
#include "sim/engines/engine_plan.hpp"

namespace mfsdp {

/// Requires a configuration from engine_config(), with two ranks or more.
[[nodiscard]] EnginePlan fsdp1_plan(const PlanConfig& config, const Meta& meta,
                                    const EngineOptions& options);

}  // namespace mfsdp
