// A step of PyTorch FSDP2 (fully_shard of every block and of the model), as its host issues it.
#pragma once

#include "sim/engines/engine.hpp"
#include "sim/engines/engine_plan.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

/// The step of a configuration from engine_config() with the same options.
[[nodiscard]] EnginePlan fsdp2_plan(EngineKind engine, const PlanConfig& config,
                                    const EngineOptions& options, const Meta& meta,
                                    std::int64_t l2_bytes = kL2OfH200);

}  // namespace mfsdp
