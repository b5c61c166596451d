// The step of any engine that is described.
#pragma once

#include "core/plan/engine.hpp"
#include "sim/engines/engine_plan.hpp"

namespace mfsdp {

/// Of a configuration that engine_config() gave. Requires an engine other than ours.
[[nodiscard]] EnginePlan engine_plan_of(EngineKind engine, const PlanConfig& config,
                                        const Meta& meta);

}  // namespace mfsdp
