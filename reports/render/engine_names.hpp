// What people call the engines.
#pragma once

#include <string_view>

#include "core/plan/engine.hpp"

namespace mfsdp {

/// Who trains: "PyTorch FSDP2 with compiled blocks".
[[nodiscard]] constexpr std::string_view trainer_name(EngineKind engine) {
  switch (engine) {
    case EngineKind::mfsdp: return "mfsdp-exec";
    case EngineKind::fsdp2: return "PyTorch FSDP2";
    case EngineKind::fsdp2_compile: return "PyTorch FSDP2 with compiled blocks";
    case EngineKind::fsdp2_compile_loss: return "PyTorch FSDP2 with compiled blocks and loss";
    case EngineKind::mfsdp1: return "Megatron-FSDP v1";
    case EngineKind::mfsdp2: return "Megatron-FSDP v2";
    case EngineKind::mfsdp2_eager: return "Megatron-FSDP v2 with PyTorch's kernels";
    case EngineKind::mcore: return "Megatron-Core";
    case EngineKind::mcore_unfused_loss: return "Megatron-Core with the unfused loss";
  }
  return "";
}

}  // namespace mfsdp
