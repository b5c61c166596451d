// The step of any modelled engine.
#pragma once

#include "core/plan/engine.hpp"
#include "core/plan/engine_options.hpp"
#include "sim/engines/engine_plan.hpp"
#include "sim/engines/step_builder.hpp"

namespace mfsdp {

/// The step of one rank, or of a pipeline's stage, for a configuration from engine_config(). Requires an engine other than mfsdp.
/// `l2_bytes`: the GPU's L2 cache, which Inductor's benchmarks overwrite. `options`: those that the
/// engine has.
[[nodiscard]] EnginePlan engine_plan_of(EngineKind engine, const PlanConfig& config,
                                        const Meta& meta, std::int64_t l2_bytes = kL2OfH200,
                                        const EngineOptions& options = {}, std::int64_t stage = 0);

}  // namespace mfsdp
