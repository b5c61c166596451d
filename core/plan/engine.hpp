// Whose kernels, schedule and allocator a plan describes.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// `mfsdp` is ours, whose plan runs as it is predicted. The others are described (sim/engines):
/// PyTorch FSDP2, with blocks as they are, compiled by Inductor, or the loss too, and
/// Megatron-FSDP's two versions with fused element-wise functions, the second with PyTorch's own
/// kernels, too; Megatron-Core's distributed optimizer with Transformer Engine's modules, its loss
/// fused or not.
enum class EngineKind {
  mfsdp,
  fsdp2,
  fsdp2_compile,
  fsdp2_compile_loss,
  mfsdp1,
  mfsdp2,
  mfsdp2_eager,
  mcore,
  mcore_unfused_loss
};

/// PyTorch FSDP2 whose blocks Inductor compiles.
[[nodiscard]] constexpr bool has_compiled_blocks(EngineKind engine) {
  return engine == EngineKind::fsdp2_compile || engine == EngineKind::fsdp2_compile_loss;
}

/// Megatron-Core's distributed optimizer, which shards the optimizer's states alone.
[[nodiscard]] constexpr bool is_mcore(EngineKind engine) {
  return engine == EngineKind::mcore || engine == EngineKind::mcore_unfused_loss;
}

/// Flags of the configuration that other engines have no choice of.
inline constexpr std::array<std::string_view, 12> kOwnChoices{
    "--prefetch",      "--grad-slots", "--allocator", "--layout",
    "--deterministic", "--exact-sums", "--attention", "--logits-chunk",
    "--placement",     "--gather",     "--reduce",    "--keep-gathered"};

/// Whether the engine can be told that. Megatron-FSDP's first version has two buffers, or not.
[[nodiscard]] constexpr bool has_choice(EngineKind engine, std::string_view flag) {
  if (engine == EngineKind::mfsdp) return true;
  if (engine == EngineKind::mfsdp1 && flag == "--allocator") return true;
  return std::ranges::find(kOwnChoices, flag) == kOwnChoices.end();
}

template <>
struct Names<EngineKind> {
  static constexpr std::array<std::string_view, 9> values{
      "mfsdp",  "fsdp2",        "fsdp2-compile", "fsdp2-compile-loss", "mfsdp1",
      "mfsdp2", "mfsdp2-eager", "mcore",         "mcore-unfused-loss"};
};

}  // namespace mfsdp
