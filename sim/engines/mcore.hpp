// Megatron-Core's DistributedDataParallel with its distributed optimizer (ZeRO-1), as a step.
#pragma once

#include "core/plan/engine.hpp"
#include "core/plan/engine_options.hpp"
#include "sim/engines/engine_plan.hpp"

namespace mfsdp {

/// The step of a pipeline's stage, for any number of microbatches and ranks.
[[nodiscard]] EnginePlan mcore_plan(EngineKind engine, const PlanConfig& config, const Meta& meta,
                                    const EngineOptions& options, std::int64_t stage = 0);

}  // namespace mfsdp
