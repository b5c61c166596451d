// The engine whose kernels, schedule and allocator a plan describes.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// `mfsdp` is ours; it runs the plan that is predicted. Other engines are described in sim/engines:
/// PyTorch FSDP2 in eager mode, with blocks or also the loss compiled by Inductor; Megatron-FSDP's
/// two versions with fused element-wise functions, the second also with PyTorch's kernels; and
/// Megatron-Core's distributed optimizer with Transformer Engine's modules, with a fused loss or
/// not.
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

/// PyTorch FSDP2 with blocks compiled by Inductor.
[[nodiscard]] constexpr bool has_compiled_blocks(EngineKind engine) {
  return engine == EngineKind::fsdp2_compile || engine == EngineKind::fsdp2_compile_loss;
}

/// Megatron-Core's distributed optimizer, which shards only optimizer states.
[[nodiscard]] constexpr bool is_mcore(EngineKind engine) {
  return engine == EngineKind::mcore || engine == EngineKind::mcore_unfused_loss;
}

/// Flags of the configuration that other engines do not have.
inline constexpr std::array<std::string_view, 12> kOwnChoices{
    "--prefetch",      "--grad-slots", "--allocator", "--layout",
    "--deterministic", "--exact-sums", "--attention", "--logits-chunk",
    "--placement",     "--gather",     "--reduce",    "--keep-gathered"};

/// Whether the engine has that setting. Megatron-FSDP's first version can use two buffers.
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
