// Checks which parts of a configuration an engine supports.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/plan/config.hpp"
#include "core/plan/engine.hpp"
#include "core/plan/engine_options.hpp"

namespace mfsdp {

/// Version of PyTorch in the recorded runs.
inline constexpr std::string_view kTorchVersion = "2.11";

/// The error for a flag whose value is not modelled for the engine: "--engine fsdp2 cannot be
/// predicted with `what` yet; `instead`".
[[nodiscard]] tl::unexpected<Error> cannot_predict(EngineKind engine, const char* flag,
                                                   std::string_view what,
                                                   std::string_view instead = "leave --engine out");

/// The error for a flag whose value the engine does not support: "--engine fsdp2 `does`".
[[nodiscard]] tl::unexpected<Error> does_otherwise(EngineKind engine, const char* flag,
                                                   std::string_view does);

/// The error for --recompute if the engine's recomputation is not modelled.
[[nodiscard]] tl::unexpected<Error> no_recomputation(EngineKind engine);

/// Whether the engine is described with ranks of that axis: tp, cp or pp.
[[nodiscard]] bool may_share(EngineKind engine, Modules modules, Axis axis);

/// The rules of --tp and --cp that a configuration for the engine keeps.
[[nodiscard]] inline MeshRules mesh_rules(EngineKind engine) {
  return traits_of(engine).runs_plans ? MeshRules::planner : MeshRules::others;
}

/// The origin of the engine's description of that model and of FP8, where it is not recorded runs
/// alone; empty otherwise.
[[nodiscard]] std::string engine_basis(EngineKind engine, const PlanConfig& config);

/// "keeps and reduces gradients in bf16". Requires an engine with only one type of gradients.
[[nodiscard]] std::string only_gradients_text(EngineKind engine);

/// Whether selective recomputation is available: Megatron-Core's modules of models with experts.
[[nodiscard]] bool recomputes_modules(EngineKind engine, const ModelShape& model);

/// The configuration as the engine uses it. Engines have fewer options than mfsdp; a setting
/// without a flag in the engine gets the engine's fixed value (selective recomputation: none).
/// Errors name each flag that the engine does not support, or that is not modelled, all at once.
///
/// An engine with only one strategy has it with mfsdp's default, too. mcore supports selective
/// recomputation of models with experts: Megatron-Core's modules `layernorm` (before experts) and
/// `moe_act`.
///
/// Under FSDP2 gradients and AdamW's states have the type of the weights between steps.
///
/// AllocatorPolicy::double_buffer is fsdp_double_buffer of megatron-fsdp-v1; any other policy is
/// without it.
[[nodiscard]] Result<PlanConfig> engine_config(EngineKind engine, const PlanConfig& config,
                                               const EngineOptions& options = {});

}  // namespace mfsdp
