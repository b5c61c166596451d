// Classes of kernels by their sensitivity to the power limit and to concurrent collectives.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/plan/kernel_spec.hpp"

namespace mfsdp {

enum class KernelClass : std::uint8_t {
  product,  ///< bound by matrix units
  attention_forward,
  attention_backward,
  memory  ///< bound by memory
};

inline constexpr std::size_t kKernelClasses = 4;

/// One value for each class.
template <class T>
struct PerKernelClass {
  std::array<T, kKernelClasses> values{};

  [[nodiscard]] T& operator[](KernelClass which) { return values[static_cast<std::size_t>(which)]; }
  [[nodiscard]] const T& operator[](KernelClass which) const {
    return values[static_cast<std::size_t>(which)];
  }
  friend bool operator==(const PerKernelClass&, const PerKernelClass&) = default;
};

[[nodiscard]] constexpr KernelClass class_of(KernelKind kind) {
  switch (kind) {
    case KernelKind::gemm:
    case KernelKind::gemm_blocks:
    case KernelKind::gemm_fp8:
    case KernelKind::grouped_input_gradient:
    case KernelKind::grouped_product:
    case KernelKind::grouped_weight_gradient:
    case KernelKind::newton_schulz: return KernelClass::product;
    case KernelKind::attention_forward: return KernelClass::attention_forward;
    case KernelKind::attention_backward: return KernelClass::attention_backward;
    default: return KernelClass::memory;
  }
}

}  // namespace mfsdp
