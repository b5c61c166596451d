// The peak rate of a kernel's matrix units.
#pragma once

#include "core/plan/fp8.hpp"
#include "core/plan/kernel_spec.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// The dense peak of GEMMs and attention of that kind, which compute in bf16 or FP8.
[[nodiscard]] constexpr Teraflops peak_of(KernelKind kind, const Gpu& gpu) {
  return kind == KernelKind::gemm_fp8 ? kFp8Speed * gpu.bf16 : gpu.bf16;
}

}  // namespace mfsdp
