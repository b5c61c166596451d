// Scales of blocks of 128 values on CUDA (core/plan/kernels/fp8_blocks.hpp), as DeepSeek-V3 has them: fp32, of
// 1 x 128 values or, of weights, of 128 x 128.
//
//   amax of a block ─► factor = 448 / amax ─► code = saturate(round(value * factor))
//                                          └► scale = 1 / factor, by which readers multiply codes
//
// factor is 1 where amax is 0, infinite or NaN, and at most the largest bf16 number.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "core/base/error.hpp"
#include "core/plan/kernels/fp8_blocks.hpp"

namespace mfsdp::cuda {

/// Values in a row of a block.
inline constexpr std::int64_t kScaleBlock = 128;

/// Queues one read of the input, which gives the codes as stored, of the transpose, or both, each with scales
/// of its own blocks. Refuses other blocks, other numbers than E4M3 with fp32 scales, and matrices that do not
/// begin on multiples of 16 bytes.
[[nodiscard]] Result<void> cast_blocks(const kernels::CastBlocks<Bf16>& k, cudaStream_t stream);

/// Rows that a column of cuBLASLt's scales of 128 x 128 blocks is padded to.
[[nodiscard]] constexpr std::int64_t padded_scales(std::int64_t blocks) {
  return (blocks + 3) / 4 * 4;
}

/// Queues the copy of a weight's scales [blocks, lines] to cuBLASLt's layout [lines, padded_scales(blocks)].
[[nodiscard]] Result<void> lay_out_scales(std::int64_t blocks, std::int64_t lines,
                                          const float* scales, float* to, cudaStream_t stream);

}  // namespace mfsdp::cuda
