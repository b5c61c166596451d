// Kinds of kernels, recognised by their names.
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
  packing,  ///< sharded trainers' copies between parameters and the buffers of collectives
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

/// A substring of a kernel's name, case-insensitive, and the kind of such a kernel.
struct KernelPattern {
  std::string_view part;
  KernelKind kind;
};

/// The first pattern that occurs in a name decides.
[[nodiscard]] std::span<const KernelPattern> kernel_patterns();
[[nodiscard]] KernelKind kernel_kind(std::string_view name);

/// Bytes of an element of a PyTorch type as the profiler names it ("BFloat16"); none if unknown.
[[nodiscard]] std::optional<std::int64_t> element_bytes(std::string_view dtype);

}  // namespace mfsdp::traces
