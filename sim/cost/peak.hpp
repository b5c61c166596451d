// The peak rate of a kernel's matrix units.
#pragma once

#include "core/plan/kernel_spec.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// Data sheets of all GPUs with FP8 state twice the dense rate of bf16.
inline constexpr double kFp8Speed = 2;

/// The dense peak of GEMMs and attention of that kind, which compute in bf16 or FP8.
[[nodiscard]] constexpr Teraflops peak_of(KernelKind kind, const Gpu& gpu) {
  return kind == KernelKind::gemm_fp8 ? kFp8Speed * gpu.bf16 : gpu.bf16;
}

}  // namespace mfsdp
