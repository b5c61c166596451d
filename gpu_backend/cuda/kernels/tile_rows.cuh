// Stores results of tensor cores from the registers of a quad of lanes in pieces of 16 bytes. In 8
// columns, lane q of a quad has columns 2q and 2q + 1; a call has four such groups of 8.
#pragma once

#include <cstdint>
#include <type_traits>

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

/// The columns of a part of 32 that a lane stores at once: piece number `piece` of the lane.
template <class G>
inline constexpr int kPieces = static_cast<int>(sizeof(G)) / 2;
template <class G>
__device__ int piece_col(int piece, int lane) {
  if constexpr (sizeof(G) == 2)
    return lane % 4 * 8;
  else
    return (2 * piece + lane % 2) * 8 + lane / 2 % 2 * 4;
}

/// Rearranges a quad's 32 columns to pieces of 16 bytes, added to the previous values. values[2 j],
/// values[2 j + 1]: of group j.
template <class G>
__device__ void make_pieces(float (&values)[8], const uint4 (&old)[1], bool adds, int lane,
                            uint4 (&made)[1]) {
  static_assert(sizeof(G) == 2);
  if (adds) {
    std::uint32_t words[4] = {old[0].x, old[0].y, old[0].z, old[0].w};
    turn_quad(words, lane);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      values[2 * j] += widened(G{static_cast<std::uint16_t>(words[j] & 0xffffU)});
      values[2 * j + 1] += widened(G{static_cast<std::uint16_t>(words[j] >> 16U)});
    }
  }
  std::uint32_t words[4];
#pragma unroll
  for (int j = 0; j < 4; ++j) words[j] = pair_of<G>(values[2 * j], values[2 * j + 1]);
  turn_quad(words, lane);
  made[0] = {words[0], words[1], words[2], words[3]};
}

/// Even lanes take group 2 p, odd ones group 2 p + 1: four columns each.
template <class G>
__device__ void make_pieces(float (&values)[8], const uint4 (&old)[2], bool adds, int lane,
                            uint4 (&made)[2]) {
  static_assert(std::is_same_v<G, float>);
  const bool odd = lane % 2 != 0;
#pragma unroll
  for (int p = 0; p < 2; ++p) {
    const float* const low = values + 4 * p;
    const float* const high = low + 2;
    const float first = __shfl_xor_sync(~0U, odd ? low[0] : high[0], 1);
    const float second = __shfl_xor_sync(~0U, odd ? low[1] : high[1], 1);
    float4 four =
        odd ? float4{first, second, high[0], high[1]} : float4{low[0], low[1], first, second};
    if (adds) {
      four.x += __uint_as_float(old[p].x);
      four.y += __uint_as_float(old[p].y);
      four.z += __uint_as_float(old[p].z);
      four.w += __uint_as_float(old[p].w);
    }
    made[p] = {__float_as_uint(four.x), __float_as_uint(four.y), __float_as_uint(four.z),
               __float_as_uint(four.w)};
  }
}

/// Stores the first 32 columns of each part at `to`, limited to `cols`, a multiple of 8. It stores
/// none if cols <= 0; cols may differ between the quads of a warp. All lanes of a warp must call
/// it. The values to add to are loaded for all parts first.
template <int Parts, class G>
__device__ void store_parts(G* to, int cols, float (&values)[Parts][8], bool adds, int lane) {
  constexpr int N = kPieces<G>;
  uint4 old[Parts][N] = {};
  const auto for_all = [&](const auto& visit) {
#pragma unroll
    for (int part = 0; part < Parts; ++part)
#pragma unroll
      for (int p = 0; p < N; ++p) {
        const int col = part * 32 + piece_col<G>(p, lane);
        if (col < cols) visit(reinterpret_cast<uint4*>(to + col), part, p);
      }
  };
  if (adds) for_all([&](const uint4* from, int part, int p) { old[part][p] = *from; });
  uint4 made[Parts][N];
#pragma unroll
  for (int part = 0; part < Parts; ++part)
    make_pieces<G>(values[part], old[part], adds, lane, made[part]);
  for_all([&](uint4* place, int part, int p) { __stcs(place, made[part][p]); });
}

}  // namespace mfsdp::cuda
