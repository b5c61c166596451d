// The options of FSDP2's engines, as their code reads them.
#pragma once

#include "core/plan/engine_options.hpp"

namespace mfsdp {

/// torchao's float8 options, of --fp8.
struct Float8Options {
  bool gathers_fp8 = false;         ///< enable_fsdp_float8_all_gather
  bool precomputes_scales = false;  ///< precompute_float8_dynamic_scale_for_fsdp
  bool recomputes_weights = false;  ///< force_recompute_fp8_weight_in_bwd
};

/// Requires an engine that has them.
struct Fsdp2Options {
  Fsdp2Options(EngineKind engine, const EngineOptions& given)
      : modules(given.get<Modules>(engine, "--modules")),
        units(given.get<FsdpUnits>(engine, "--fsdp-unit")),
        selective_ac(given.get<SelectiveAc>(engine, "--selective-ac")),
        accumulate_unsharded(given.is_on(engine, "--accumulate-unsharded")),
        reshard_root(given.is_on(engine, "--reshard-root")),
        bf16_loss(given.is_on(engine, "--bf16-loss")),
        holds_logits(given.is_on(engine, "--hold-logits")),
        float8{
            .gathers_fp8 = given.is_on(engine, "enable_fsdp_float8_all_gather"),
            .precomputes_scales = given.is_on(engine, "precompute_float8_dynamic_scale_for_fsdp"),
            .recomputes_weights = given.is_on(engine, "force_recompute_fp8_weight_in_bwd")} {}

  Modules modules;
  FsdpUnits units;
  SelectiveAc selective_ac;
  bool accumulate_unsharded;
  bool reshard_root;
  bool bf16_loss;
  bool holds_logits;
  Float8Options float8;
};

}  // namespace mfsdp
