// The options of FSDP2's engines, as their code reads them.
#pragma once

#include "core/plan/engine_options.hpp"

namespace mfsdp {

/// Requires an engine that has them.
struct Fsdp2Options {
  Fsdp2Options(EngineKind engine, const EngineOptions& given)
      : modules(given.get<Modules>(engine, "--modules")),
        units(given.get<FsdpUnits>(engine, "--fsdp-unit")),
        selective_ac(given.get<SelectiveAc>(engine, "--selective-ac")),
        accumulate_unsharded(given.is_on(engine, "--accumulate-unsharded")),
        reshard_root(given.is_on(engine, "--reshard-root")),
        bf16_loss(given.is_on(engine, "--bf16-loss")),
        holds_logits(given.is_on(engine, "--hold-logits")) {}

  Modules modules;
  FsdpUnits units;
  SelectiveAc selective_ac;
  bool accumulate_unsharded;
  bool reshard_root;
  bool bf16_loss;
  bool holds_logits;
};

}  // namespace mfsdp
