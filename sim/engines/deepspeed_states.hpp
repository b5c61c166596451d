// DeepSpeed's ZeRO-1 and ZeRO-2 of a Llama in bf16.
#pragma once

#include "core/plan/engine_options.hpp"
#include "sim/engines/engine_plan.hpp"

namespace mfsdp {

/// The step of the last rank: its part has the first gradients of backward, so it needs most memory.
/// Requires a configuration from engine_config(), with two ranks or more.
[[nodiscard]] EnginePlan deepspeed_states_plan(EngineKind engine, const PlanConfig& config,
                                               const Meta& meta, const EngineOptions& options);

}  // namespace mfsdp
