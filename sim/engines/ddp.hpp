// PyTorch DistributedDataParallel (DDP) of a Llama with fp32 weights, trained under
// torch.autocast(bfloat16).
#pragma once

#include "core/plan/engine_options.hpp"
#include "sim/engines/engine_plan.hpp"

namespace mfsdp {

/// Requires a configuration from engine_config(), with two ranks or more.
/// Steps of two runs on two H200 were within 1.8 % (docs/lab/2026-11-29-engines-5.md).
[[nodiscard]] EnginePlan ddp_plan(const PlanConfig& config, const Meta& meta,
                                  const EngineOptions& options);

}  // namespace mfsdp
