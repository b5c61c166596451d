// What tensor cores leave in the registers of a quad of lanes, stored in pieces of 16 bytes. Of 8
// columns, lane q of a quad has columns 2q and 2q + 1; four such groups of 8 are one call's.
#pragma once

#include <cstdint>

#include "gpu_backend/cuda/kernels/device.cuh"

namespace mfsdp::cuda {

/// Lane q's word of group j becomes lane j's word of column pair q, and back.
__device__ inline void turn_quad(std::uint32_t (&words)[4], int lane) {
  const auto exchange = [lane](std::uint32_t& low, std::uint32_t& high, int bit) {
    const bool upper = (lane & bit) != 0;
    const std::uint32_t other = __shfl_xor_sync(~0U, upper ? low : high, bit);
    (upper ? low : high) = other;
  };
  exchange(words[0], words[1], 1);
  exchange(words[2], words[3], 1);
  exchange(words[0], words[2], 2);
  exchange(words[1], words[3], 2);
}

template <class T>
__device__ std::uint32_t pair_of(float first, float second) {
  return static_cast<std::uint32_t>(narrowed<T>(first).bits) |
         static_cast<std::uint32_t>(narrowed<T>(second).bits) << 16U;
}
template <>
__device__ inline std::uint32_t pair_of<Bf16>(float first, float second) {
  const __nv_bfloat162 pair = __float22bfloat162_rn({first, second});
  return *reinterpret_cast<const std::uint32_t*>(&pair);
}

/// The first 32 columns at `to`, as far as there are `cols` of them, a multiple of 8; none where
/// cols <= 0, which may differ between the quads of a warp. values[2 j], values[2 j + 1]: of group
/// j. All lanes of a warp call it.
template <class G>
__device__ void store_quad(G* to, int cols, float (&values)[8], bool adds, int lane) {
  static_assert(sizeof(G) == 2);
  const int col = lane % 4 * 8;
  const bool there = col < cols;
  std::uint32_t words[4] = {};
  if (adds) {
    if (there) {
      const uint4 old = *reinterpret_cast<const uint4*>(to + col);
      words[0] = old.x;
      words[1] = old.y;
      words[2] = old.z;
      words[3] = old.w;
    }
    turn_quad(words, lane);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      values[2 * j] += widened(G{static_cast<std::uint16_t>(words[j] & 0xffffU)});
      values[2 * j + 1] += widened(G{static_cast<std::uint16_t>(words[j] >> 16U)});
    }
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) words[j] = pair_of<G>(values[2 * j], values[2 * j + 1]);
  turn_quad(words, lane);
  if (there) *reinterpret_cast<uint4*>(to + col) = {words[0], words[1], words[2], words[3]};
}

template <>
__device__ inline void store_quad(float* to, int cols, float (&values)[8], bool adds, int lane) {
  const bool odd = lane % 2 != 0;
#pragma unroll
  for (int j = 0; j < 4; j += 2) {
    // Even lanes take group j, odd ones group j + 1: four columns each.
    float* const low = values + 2 * j;
    float* const high = low + 2;
    float4 four;
    const float first = __shfl_xor_sync(~0U, odd ? low[0] : high[0], 1);
    const float second = __shfl_xor_sync(~0U, odd ? low[1] : high[1], 1);
    if (odd)
      four = {first, second, high[0], high[1]};
    else
      four = {low[0], low[1], first, second};
    const int col = (j + (odd ? 1 : 0)) * 8 + lane / 2 % 2 * 4;
    if (col >= cols) continue;
    auto* const place = reinterpret_cast<float4*>(to + col);
    if (adds) {
      const float4 old = *place;
      four = {old.x + four.x, old.y + four.y, old.z + four.z, old.w + four.w};
    }
    *place = four;
  }
}

}  // namespace mfsdp::cuda
