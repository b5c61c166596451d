// The step of any engine that is described.
#pragma once

#include "core/plan/engine.hpp"
#include "sim/engines/engine_plan.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

/// Of a configuration that engine_config() gave. Requires an engine other than ours. `l2_bytes`: of
/// the GPU, which Inductor's benchmarks write over.
[[nodiscard]] EnginePlan engine_plan_of(EngineKind engine, const PlanConfig& config,
                                        const Meta& meta, std::int64_t l2_bytes = kL2OfH200);

}  // namespace mfsdp
