// The peak rate of a kernel's matrix units.
#pragma once

#include <algorithm>

#include "core/plan/fp8.hpp"
#include "core/plan/fp8_blocks.hpp"
#include "core/plan/op.hpp"
#include "sim/hardware/gpu.hpp"

namespace mfsdp {

/// Values in a row of a block of --fp8 blockwise.
inline constexpr std::int64_t kBlockwise = block_format(Fp8Recipe::blockwise)->block;

/// The dense peak of GEMMs and attention, which compute in bf16, FP8 or FP4.
[[nodiscard]] inline Teraflops peak_of(const Kernel& kernel, const Gpu& gpu) {
  if (!is_cast_gemm(kernel.kind)) return gpu.bf16;
  const bool in_fp4 = std::ranges::any_of(kernel.operands, [](const Operand& operand) {
    return operand.access == Access::read && operand.dtype == DType::fp4_e2m1x2;
  });
  return in_fp4 && gpu.nvfp4 > 0 ? gpu.nvfp4 : kFp8Speed * gpu.bf16;
}

}  // namespace mfsdp
