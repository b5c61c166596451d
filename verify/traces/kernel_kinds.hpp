// What a kernel does, by its name.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace mfsdp::traces {

enum class KernelKind {
  gemm,
  attention,
  norm,
  loss,
  optimizer,
  embedding,
  packing,  ///< sharded trainers' copies between parameters and what collectives take or bring
  reduction,
  elementwise,
  copy,
  fill,
  other
};
inline constexpr std::array<std::string_view, 12> kKernelKindNames{
    "gemm",    "attention", "norm",        "loss", "optimizer", "embedding",
    "packing", "reduction", "elementwise", "copy", "fill",      "other"};
[[nodiscard]] inline std::string_view to_string(KernelKind kind) {
  return kKernelKindNames[static_cast<std::size_t>(kind)];
}

/// Part of a kernel's name, without regard to case, and what such a kernel is.
struct KernelPattern {
  std::string_view part;
  KernelKind kind;
};

/// The first pattern that a name holds decides.
[[nodiscard]] std::span<const KernelPattern> kernel_patterns();
[[nodiscard]] KernelKind kernel_kind(std::string_view name);

/// Bytes of an element of a PyTorch type as the profiler writes it ("BFloat16"); none if unknown.
[[nodiscard]] std::optional<std::int64_t> element_bytes(std::string_view dtype);

}  // namespace mfsdp::traces
