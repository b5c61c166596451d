// Device code for FP8: codes, the largest magnitude of a grid, and tiles that are written transposed.
#pragma once

#include <cuda_fp8.h>

#include <cfloat>
#include <type_traits>

#include "gpu_backend/cuda/kernels/device.cuh"

namespace mfsdp::cuda {

// ---- codes -------------------------------------------------------------------------------------

/// Rounds to nearest even and saturates; NaN gives 0x7f. The first is in the low byte.
template <class F>
__device__ std::uint32_t two_codes(float first, float second) {
  constexpr auto kFormat = std::is_same_v<F, Fp8E4m3> ? __NV_E4M3 : __NV_E5M2;
  return __nv_cvt_float2_to_fp8x2(float2{first, second}, __NV_SATFINITE, kFormat);
}

template <class F>
__device__ std::uint32_t four_codes(const float* values, float factor) {
  return __byte_perm(two_codes<F>(values[0] * factor, values[1] * factor),
                     two_codes<F>(values[2] * factor, values[3] * factor), 0x5410);
}

/// See fp8.hpp.
template <class F>
__device__ float factor_of(float amax) {
  constexpr float kMost = fp8_max<F>;
  if (!(amax > 0) || isinf(amax)) return 1;
  const float factor = __fdiv_rn(kMost, amax);
  return isinf(factor) ? FLT_MAX : factor;
}

// ---- the largest magnitude ---------------------------------------------------------------------

/// The largest magnitude of a thread's elements, as bits: those of non-negative floats order as the floats do, NaN last.
template <class T>
class Largest {
 public:
  template <int N>
  __device__ void add(const Pack<T, N>& pack) {
    if constexpr (kPairs<T, N>) {
#pragma unroll
      for (int i = 0; i < N / 2; ++i) bits_ = __vmaxu2(bits_, pack.values[i] & 0x7fff7fffU);
    } else {
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const std::uint32_t bits = __float_as_uint(element(pack, i)) & 0x7fffffffU;
        bits_ = std::is_same_v<T, Bf16> ? __vmaxu2(bits_, bits >> 16U) : max(bits_, bits);
      }
    }
  }
  /// The bits of a float.
  __device__ std::uint32_t bits() const {
    if constexpr (std::is_same_v<T, Bf16>)
      return max(bits_ & 0xffff0000U, bits_ << 16U);
    else
      return bits_;
  }

 private:
  std::uint32_t bits_ = 0;  ///< of bf16: two halves
};

/// Before kernels raise it. Null: not wanted.
[[nodiscard]] inline Result<void> begin_amax(float* amax, const char* kernel, cudaStream_t stream) {
  if (amax == nullptr) return {};
  return check(cudaMemsetAsync(amax, 0, sizeof *amax, stream), "cudaMemsetAsync", kernel);
}

/// Raises *amax to the largest of a block's bits. Call it in all threads of complete warps. The order
/// of blocks has no influence.
__device__ inline void raise_to(std::uint32_t bits, float* amax) {
  __shared__ std::uint32_t of_warps[kWarp];
  const auto thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int warps = static_cast<int>(blockDim.x * blockDim.y) / kWarp;
  bits = __reduce_max_sync(0xffffffffU, bits);
  if (thread % kWarp == 0) of_warps[thread / kWarp] = bits;
  __syncthreads();
  if (thread >= kWarp) return;
  bits = __reduce_max_sync(0xffffffffU, thread < warps ? of_warps[thread] : 0U);
  // Most blocks find a larger one: a read is cheaper than an atomic operation on one address.
  auto* const at = reinterpret_cast<std::uint32_t*>(amax);
  if (thread == 0 && bits > __ldcg(at)) atomicMax(at, bits);
}

// ---- tiles -------------------------------------------------------------------------------------

inline constexpr int kTile = 128;         ///< rows and columns
inline constexpr int kTileThreads = 256;  ///< of a block that has a tile

/// Tiles of a matrix in the order of blocks.
struct ByteTileOrder {
  std::int64_t row_tiles = 0;
  std::int64_t col_tiles = 0;
  bool down = false;       ///< columns of tiles one after the other, else rows of tiles
  bool backwards = false;  ///< first what its producer wrote last, which the L2 cache still has

  struct Place {
    std::int64_t row;
    std::int64_t col;
  };
  [[nodiscard]] __device__ Place of(std::uint32_t block) const {
    if (backwards) block = gridDim.x - 1 - block;
    const auto length = static_cast<std::uint32_t>(down ? row_tiles : col_tiles);
    const std::int64_t line = block / length;
    const std::int64_t in_line = block % length;
    return {(down ? in_line : line) * kTile, (down ? line : in_line) * kTile};
  }
};

[[nodiscard]] inline ByteTileOrder tiles_of(std::int64_t rows, std::int64_t cols) {
  return {.row_tiles = ceil_div(rows, std::int64_t{kTile}),
          .col_tiles = ceil_div(cols, std::int64_t{kTile})};
}

/// As prefer_cache, for a kernel with tiles: some 30 per cent of an SM's memory holds those of the
/// blocks that fit.
template <auto kernel>
void prefer_cache_with_tiles() {
  constexpr int kPerCent = 30;
  static const cudaError_t asked =
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, kPerCent);
  static_cast<void>(asked);
}

/// A 4 x 4 block of bytes: words of rows become words of columns.
__device__ inline void transpose_block(std::uint32_t& a, std::uint32_t& b, std::uint32_t& c,
                                       std::uint32_t& d) {
  const std::uint32_t ab_low = __byte_perm(a, b, 0x5140);  // a0 b0 a1 b1
  const std::uint32_t cd_low = __byte_perm(c, d, 0x5140);
  const std::uint32_t ab_high = __byte_perm(a, b, 0x7362);  // a2 b2 a3 b3
  const std::uint32_t cd_high = __byte_perm(c, d, 0x7362);
  a = __byte_perm(ab_low, cd_low, 0x5410);
  b = __byte_perm(ab_low, cd_low, 0x7632);
  c = __byte_perm(ab_high, cd_high, 0x5410);
  d = __byte_perm(ab_high, cd_high, 0x7632);
}

/// A tile of bytes in shared memory, transposed: columns of words, each of 4 rows. `kStrip` columns
/// are written by one thread; the words of a column are permuted by its strip, so that neither
/// writes (lanes differ in strip) nor reads (lanes differ in rows) meet in a bank.
template <int kStrip>
class TransposedTile {
 public:
  /// Codes of rows 4 quad .. 4 quad + 3 and columns strip * kStrip ..: rows[r][w] has 4 columns.
  __device__ void put(int quad, int strip, std::uint32_t (&rows)[4][kStrip / 4]) {
#pragma unroll
    for (int w = 0; w < kStrip / 4; ++w) {
      transpose_block(rows[0][w], rows[1][w], rows[2][w], rows[3][w]);
#pragma unroll
      for (int i = 0; i < 4; ++i)
        words_[strip * kStrip + 4 * w + i][quad ^ (kSpread * strip)] = rows[i][w];
    }
  }

  /// Writes the part inside [rows, cols] of the tile at `place` to `to`, [cols, rows]. After a barrier.
  __device__ void write(ByteTileOrder::Place place, std::int64_t rows, std::int64_t cols,
                        std::uint8_t* to) const {
#pragma unroll
    for (int turn = 0; turn < kTile * kChunks / kTileThreads; ++turn) {
      const int at = static_cast<int>(threadIdx.x) + turn * kTileThreads;
      const int col = at / kChunks;
      const int chunk = at % kChunks;
      const std::int64_t row = place.row + chunk * 16;
      if (place.col + col >= cols || row >= rows) continue;
      const int moved = kSpread * (col / kStrip);
      uint4 words = *reinterpret_cast<const uint4*>(&words_[col][(4 * chunk) ^ (moved & ~3)]);
      if ((moved & 2) != 0) words = {words.z, words.w, words.x, words.y};
      *reinterpret_cast<uint4*>(to + (place.col + col) * rows + row) = words;
    }
  }

 private:
  static constexpr int kChunks = kTile / 16;  ///< 16-byte words of a column
  static constexpr int kSpread = kStrip / 4;  ///< 2 or 4
  static_assert(kSpread == 2 || kSpread == 4);

  alignas(16) std::uint32_t words_[kTile][kTile / 4];
};

/// Columns of a tile that a thread of a cast has: 16 bytes of bf16.
inline constexpr int kCastStrip = 8;
inline constexpr int kCastStrips = kTile / kCastStrip;
/// A thread has rows 4 quad .. 4 quad + 3 of each half of a tile.
inline constexpr int kHalfQuads = kTileThreads / kCastStrips;
inline constexpr int kHalves = kTile / 4 / kHalfQuads;

/// Casts a thread's 4 x 8 elements, stores the codes of rows and keeps the tile's.
/// `at(r)`: index of the first element of row r in `output`.
template <class F, class Row>
__device__ void cast_block(const float (&values)[4][kCastStrip], float factor, F* output,
                           const Row& at, TransposedTile<kCastStrip>* tile, int quad, int strip) {
  std::uint32_t codes[4][2];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    codes[r][0] = four_codes<F>(&values[r][0], factor);
    codes[r][1] = four_codes<F>(&values[r][4], factor);
    if (output != nullptr)
      *reinterpret_cast<uint2*>(output + at(r)) = uint2{codes[r][0], codes[r][1]};
  }
  if (tile != nullptr) tile->put(quad, strip, codes);
}

}  // namespace mfsdp::cuda
