// What an engine can do of what a configuration asks for.
#pragma once

#include <string_view>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"
#include "core/plan/engine.hpp"

namespace mfsdp {

/// The version of PyTorch whose allocations and kernels were recorded.
inline constexpr std::string_view kTorchVersion = "2.11";

/// The error of a flag that asks for what is not modelled of the engine: "--engine fsdp2 cannot
/// predict `what` yet; `instead`".
[[nodiscard]] tl::unexpected<Error> cannot_predict(EngineKind engine, const char* flag,
                                                   std::string_view what,
                                                   std::string_view instead = "leave --engine out");

/// The error of a flag that asks for what the engine does not do: "--engine fsdp2 `does`".
[[nodiscard]] tl::unexpected<Error> does_otherwise(EngineKind engine, const char* flag,
                                                   std::string_view does);

/// The error of --recompute where the engine's recomputation is not modelled.
[[nodiscard]] tl::unexpected<Error> no_recomputation(EngineKind engine);

/// Whether selective recomputation is a choice: Megatron-Core's modules of models with experts.
[[nodiscard]] bool recomputes_modules(EngineKind engine, const ModelShape& model);

/// The configuration as the engine has it, which knows fewer choices than ours: what it has no
/// flag for is as it always is there (selective recomputation is none). Errors name the flag of
/// what the engine does not do, or of what is not modelled of it; all of them at once.
///
/// mcore shards the optimizer's states whether that is asked for (optim) or nothing else is, and
/// knows selective recomputation of models with experts: Megatron-Core's modules `layernorm`
/// (before experts) and `moe_act`.
///
/// AllocatorPolicy::double_buffer is fsdp_double_buffer of megatron-fsdp-v1; any other policy is
/// without it.
[[nodiscard]] Result<PlanConfig> engine_config(EngineKind engine, const PlanConfig& config);

}  // namespace mfsdp
