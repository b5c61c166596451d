// A step of Megatron-FSDP's second version (megatron_fsdp.experimental), as its host issues it.
#pragma once

#include "core/plan/engine.hpp"
#include "sim/engines/engine_plan.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

/// The step of a configuration from engine_config().
[[nodiscard]] EnginePlan megatron_fsdp2_plan(EngineKind engine, const PlanConfig& config,
                                             const Meta& meta, std::int64_t l2_bytes = kL2OfH200);

}  // namespace mfsdp
