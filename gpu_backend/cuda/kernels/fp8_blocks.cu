#include "gpu_backend/cuda/kernels/fp8.cuh"
#include "gpu_backend/cuda/kernels/fp8_blocks.hpp"

namespace mfsdp::cuda {
namespace {

static_assert(kScaleBlock == kTile);
constexpr int kWarpsOfTile = kTileThreads / kWarp;
constexpr int kWordsOfStrip = kCastStrip / 2;  // of two columns in bf16
constexpr std::uint32_t kMagnitudes = 0x7fff7fffU;
static_assert(kCastStrips == kWarp / 2);  // lanes of half a warp have one row

struct BlockCastCall {
  std::int64_t rows;
  std::int64_t cols;
  const Bf16* input;
  Fp8E4m3* output;
  float* output_scale;
  Fp8E4m3* output_t;
  float* output_t_scale;
};

/// See fp8_blocks.hpp; `amax` in the bits of bf16.
__device__ float block_factor_of(std::uint32_t amax) {
  const float most = __uint_as_float(amax << 16U);
  if (!(most > 0) || isinf(most)) return 1;
  return fminf(__fdiv_rn(fp8_max<Fp8E4m3>, most), __uint_as_float(0x7f7f0000U));
}

using StripRows = Pack<Bf16, kCastStrip>[kHalves][4];

/// The largest magnitudes of a thread's two columns, in halves.
__device__ std::uint32_t of_columns(const StripRows& rows, int word) {
  std::uint32_t most = 0;
#pragma unroll
  for (int half = 0; half < kHalves; ++half)
#pragma unroll
    for (int r = 0; r < 4; ++r) most = __vmaxu2(most, rows[half][r].values[word] & kMagnitudes);
  return most;
}

/// Gives the largest of a row in both halves.
__device__ std::uint32_t of_row(const Pack<Bf16, kCastStrip>& row) {
  std::uint32_t most = 0;
#pragma unroll
  for (int word = 0; word < kWordsOfStrip; ++word)
    most = __vmaxu2(most, row.values[word] & kMagnitudes);
  return __vmaxu2(most, __byte_perm(most, 0, 0x1032));
}

/// Factors of a tile's columns, for all threads; `scales`: those of this tile's columns. Call it in all
/// threads.
__device__ void set_column_factors(const StripRows& rows, int strip, float* scales,
                                   float (&factors)[kTile]) {
  __shared__ std::uint32_t of_warps[kWarpsOfTile][kTile / 2];
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int word = 0; word < kWordsOfStrip; ++word) {
    std::uint32_t most = of_columns(rows, word);
    most = __vmaxu2(most, __shfl_xor_sync(0xffffffffU, most, kWarp / 2));
    if (thread % kWarp < kWarp / 2) of_warps[thread / kWarp][strip * kWordsOfStrip + word] = most;
  }
  __syncthreads();
  if (thread < kTile / 2) {
    std::uint32_t most = 0;
#pragma unroll
    for (int warp = 0; warp < kWarpsOfTile; ++warp) most = __vmaxu2(most, of_warps[warp][thread]);
    const float2 both{block_factor_of(most & 0xffffU), block_factor_of(most >> 16U)};
    *reinterpret_cast<float2*>(&factors[2 * thread]) = both;
    *reinterpret_cast<float2*>(scales + 2 * thread) =
        float2{__fdiv_rn(1, both.x), __fdiv_rn(1, both.y)};
  }
  __syncthreads();
}

/// The factor of the whole tile. Call it in all threads.
__device__ float factor_of_tile(const StripRows& rows) {
  __shared__ std::uint32_t of_warps[kWarpsOfTile];
  const int thread = static_cast<int>(threadIdx.x);
  std::uint32_t most = 0;
#pragma unroll
  for (int word = 0; word < kWordsOfStrip; ++word) most = __vmaxu2(most, of_columns(rows, word));
  most = __reduce_max_sync(0xffffffffU, max(most & 0xffffU, most >> 16U));
  if (thread % kWarp == 0) of_warps[thread / kWarp] = most;
  __syncthreads();
#pragma unroll
  for (int warp = 0; warp < kWarpsOfTile; ++warp) most = max(most, of_warps[warp]);
  return block_factor_of(most);
}

/// A tile is a block of threads': its rows and its columns are blocks of values, or it is one itself.
template <bool kOfWeight>
__global__ void __launch_bounds__(kTileThreads)
    cast_block_tiles(const BlockCastCall k, const ByteTileOrder order) {
  __shared__ TransposedTile<kCastStrip> tile;
  __shared__ alignas(16) float column_factors[kTile];
  const ByteTileOrder::Place place = order.of(blockIdx.x);
  const int strip = static_cast<int>(threadIdx.x) % kCastStrips;
  const int first_quad = static_cast<int>(threadIdx.x) / kCastStrips;
  const std::int64_t col = place.col + strip * kCastStrip;
  const std::int64_t row_tile = place.row / kTile;
  const std::int64_t col_tile = place.col / kTile;
  const auto row_of = [&](int half, int r) {
    return place.row + 4 * (half * kHalfQuads + first_quad) + r;
  };
  StripRows rows;
#pragma unroll
  for (int half = 0; half < kHalves; ++half)
#pragma unroll
    for (int r = 0; r < 4; ++r)
      rows[half][r] = load<Bf16, kCastStrip>(k.input + row_of(half, r) * k.cols + col);

  float by_tile = 1;
  if constexpr (kOfWeight) {
    by_tile = factor_of_tile(rows);
    if (threadIdx.x == 0) {
      const float scale = __fdiv_rn(1, by_tile);
      if (k.output != nullptr) k.output_scale[col_tile * (k.rows / kTile) + row_tile] = scale;
      if (k.output_t != nullptr) k.output_t_scale[row_tile * (k.cols / kTile) + col_tile] = scale;
    }
  } else if (k.output_t != nullptr) {
    set_column_factors(rows, strip, k.output_t_scale + row_tile * k.cols + place.col,
                       column_factors);
  }
  float by_column[kCastStrip];
#pragma unroll
  for (int c = 0; c < kCastStrip; ++c)
    by_column[c] =
        kOfWeight || k.output_t == nullptr ? by_tile : column_factors[strip * kCastStrip + c];

#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    std::uint32_t codes[4][2];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float values[kCastStrip];
      widen_all(rows[half][r], values);
      if (k.output != nullptr) {
        float by_row = by_tile;
        if constexpr (!kOfWeight) {
          std::uint32_t most = of_row(rows[half][r]) & 0xffffU;
#pragma unroll
          for (int lanes = kCastStrips / 2; lanes > 0; lanes /= 2)
            most = max(most, __shfl_xor_sync(0xffffffffU, most, lanes));
          by_row = block_factor_of(most);
          if (strip == 0)
            k.output_scale[col_tile * k.rows + row_of(half, r)] = __fdiv_rn(1, by_row);
        }
        *reinterpret_cast<uint2*>(k.output + row_of(half, r) * k.cols + col) =
            uint2{four_codes<Fp8E4m3>(&values[0], by_row), four_codes<Fp8E4m3>(&values[4], by_row)};
      }
#pragma unroll
      for (int c = 0; c < kCastStrip; ++c) values[c] *= by_column[c];
      codes[r][0] = four_codes<Fp8E4m3>(&values[0], 1);
      codes[r][1] = four_codes<Fp8E4m3>(&values[4], 1);
    }
    tile.put(half * kHalfQuads + first_quad, strip, codes);
  }
  if (k.output_t == nullptr) return;
  __syncthreads();
  tile.write(place, k.rows, k.cols, reinterpret_cast<std::uint8_t*>(k.output_t));
}

__global__ void scales_to_rows(std::int64_t blocks, std::int64_t lines, std::int64_t row,
                               const float* scales, float* to) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= lines * row) return;
  const std::int64_t line = at / row;
  const std::int64_t block = at % row;
  to[at] = block < blocks ? scales[block * lines + line] : 0;
}

}  // namespace

Result<void> cast_blocks(const kernels::CastBlocks<Bf16>& k, cudaStream_t stream) {
  const char* const where = "kernel cast_blocks";
  if (k.block != kScaleBlock || k.codes != kScaleBlock || k.codes_dtype() != DType::fp8_e4m3 ||
      k.scales_dtype() != DType::fp32 || k.amax != nullptr)
    return fail(where, "expected E4M3 and fp32 scales of blocks of 128, those of --fp8 blockwise");
  if (k.lines != 1 && k.lines != kScaleBlock) return fail(where, "expected lines 1 or 128");
  const BlockCastCall call{.rows = k.blocks_t * k.block,
                           .cols = k.blocks * k.block,
                           .input = k.input,
                           .output = reinterpret_cast<Fp8E4m3*>(k.output.data),
                           .output_scale = reinterpret_cast<float*>(k.output_scale.data),
                           .output_t = reinterpret_cast<Fp8E4m3*>(k.output_t.data),
                           .output_t_scale = reinterpret_cast<float*>(k.output_t_scale.data)};
  if (!is_aligned({call.input, call.output, call.output_t, call.output_scale, call.output_t_scale},
                  16))
    return fail(where, "expected matrices and scales on multiples of 16 bytes");
  ByteTileOrder order = tiles_of(call.rows, call.cols);
  order.backwards = true;
  const auto grid = grid_of(order.row_tiles * order.col_tiles);
  if (order.row_tiles * order.col_tiles == 0) return {};
  if (k.lines == 1) {
    prefer_cache_with_tiles<cast_block_tiles<true>>();
    cast_block_tiles<true><<<grid, kTileThreads, 0, stream>>>(call, order);
  } else {
    prefer_cache_with_tiles<cast_block_tiles<false>>();
    cast_block_tiles<false><<<grid, kTileThreads, 0, stream>>>(call, order);
  }
  return launched("cast_blocks");
}

Result<void> lay_out_scales(std::int64_t blocks, std::int64_t lines, const float* scales, float* to,
                            cudaStream_t stream) {
  const std::int64_t row = padded_scales(blocks);
  constexpr int kThreads = 256;
  scales_to_rows<<<grid_of(ceil_div(lines * row, std::int64_t{kThreads})), kThreads, 0, stream>>>(
      blocks, lines, row, scales, to);
  return launched("gemm_blocks");
}

}  // namespace mfsdp::cuda
