// DeepSpeed's ZeRO-3 of a Llama in bf16.
#pragma once

#include "core/plan/engine_options.hpp"
#include "sim/engines/engine_plan.hpp"

namespace mfsdp {

/// Requires a configuration from engine_config(), with two ranks or more.
[[nodiscard]] EnginePlan deepspeed_weights_plan(const PlanConfig& config, const Meta& meta,
                                                const EngineOptions& options);

}  // namespace mfsdp
