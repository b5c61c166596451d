// Code that both directions of attention by warpgroups share: heads of 64, 96, 128 or 256 in boxes
// of 64 columns, and sums of a warpgroup in registers, in the layout of wgmma. The
// second box of a head of 96 is half empty: TMA loads zeros there, and stores nothing.
//
// For 64 x N sums d, a thread has in d[4 j + 2 r + e] row 16 * warp + lane / 4 + 8 r of its
// warpgroup, column 8 j + 2 * (lane % 4) + e.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/plan/kernels/attention.hpp"
#include "gpu_backend/cuda/kernels/sm90a/tile_order.hpp"
#include "gpu_backend/cuda/kernels/sm90a/wgmma.cuh"
#include "gpu_backend/cuda/kernels/warpgroup_attention.hpp"

namespace mfsdp::cuda {

inline constexpr int kWarpgroupThreads = 128;
inline constexpr int kAttentionThreads = 3 * kWarpgroupThreads;  // one loads, two multiply
inline constexpr int kAttentionWarps = 8;                        // that multiply
inline constexpr std::uint32_t kRowBytes = kBoxColumns * 2;
inline constexpr float kLog2E = 1.4426950408889634F;

/// Boxes of a head, the last one perhaps half empty.
template <int head_dim>
inline constexpr int kBoxes = (head_dim + kBoxColumns - 1) / kBoxColumns;

/// A query sees all tokens up to its own, or, `bounded`, those of a window or of its document.
/// `part`: likewise, where queries, and perhaps keys, are those of a part of each sequence: two
/// chunks of whole tiles (SequenceShare). Then keys have numbers in the order of their places, and
/// queries see an interval of them.
enum class Sight { whole, bounded, part };
/// The softcap of scores. `capped`: they become cap * tanh(score / cap).
enum class Cap { none, capped };

/// Sizes of a call in the form of kernels.
struct AttentionDims {
  int seq = 0;   ///< tokens of a sequence
  int rows = 0;  ///< its queries
  int keys = 0;  ///< its keys
  int heads = 0;
  int kv_heads = 0;
  int batch = 0;
  int tile_heads = 1;  ///< query heads of a tile
  int window = 0;      ///< tokens that a query sees; at most seq
  float scale = 0;
  float cap = 0;
  const std::int32_t* positions = nullptr;  ///< as in AttentionShape
  // Of a part:
  int chunk = 0;  ///< tokens
  int parts = 1;  ///< of a sequence
  int query_part = 0;
  int key_part = 0;  ///< kAllParts: keys are those of all parts, in the order of parts

  static constexpr int kAllParts = -1;

  explicit AttentionDims(const kernels::AttentionShape& s)
      : seq(static_cast<int>(s.seq_len)),
        rows(static_cast<int>(s.queries())),
        keys(static_cast<int>(s.keys())),
        heads(static_cast<int>(s.heads)),
        kv_heads(static_cast<int>(s.kv_heads)),
        batch(static_cast<int>(s.batch)),
        window(static_cast<int>(s.window > 0 ? std::min(s.window, s.seq_len) : s.seq_len)),
        scale(1 / sqrtf(s.divisor<float>())),
        cap(static_cast<float>(s.score_cap)),
        positions(s.positions),
        chunk(rows / 2),
        parts(static_cast<int>(s.share.parts)),
        query_part(static_cast<int>(s.share.part)),
        key_part(s.has_all_keys() ? kAllParts : static_cast<int>(s.share.before(s.shift).part)) {}
  [[nodiscard]] __device__ int group() const { return heads / kv_heads; }
  /// Queries and keys of a sequence. Where it is whole both are `seq`, which kernels have in a
  /// register already.
  template <Sight sight>
  [[nodiscard]] __device__ int queries_of() const {
    return sight == Sight::part ? rows : seq;
  }
  template <Sight sight>
  [[nodiscard]] __device__ int keys_of() const {
    return sight == Sight::part ? keys : seq;
  }
  /// Index of a block of 64 queries in [batch, of_heads, of_rows / 64], or of keys, of which a
  /// sequence has as many wherever blocks of keys have sums in memory.
  [[nodiscard]] __device__ std::int64_t block_at(int of_rows, int of_heads, int b, int head,
                                                 int block) const {
    return (static_cast<std::int64_t>(b) * of_heads + head) * (of_rows / 64) + block;
  }
  /// Scores are this times the elements of Q K^T, or times tanh(element * scale / cap).
  template <Cap cap_kind>
  [[nodiscard]] __device__ float score_factor() const {
    return cap_kind == Cap::capped ? cap : scale;
  }
  /// The place of a token in its document.
  [[nodiscard]] __device__ int position(int b, int place) const {
    return positions[static_cast<std::int64_t>(b) * seq + place];
  }
  /// The first place in sequence `b` that the query at `place` sees. It never decreases with
  /// `place`.
  [[nodiscard]] __device__ int first_seen(int b, int place) const {
    const int first = max(0, place - window + 1);
    return positions == nullptr ? first : max(first, place - position(b, place));
  }
  /// The first place after a key's from which it is not seen; `seq` if there is none.
  [[nodiscard]] __device__ int end_of_sight(int b, int key) const {
    int low = key + 1;
    int high = min(seq, key + window);
    while (positions != nullptr && low < high) {
      const int middle = (low + high) / 2;
      if (middle - position(b, middle) > key)
        high = middle;
      else
        low = middle + 1;
    }
    return high;
  }

  // ---- parts: chunk `part`, then chunk 2 * parts - 1 - part

  /// The place of a row of a part.
  [[nodiscard]] __device__ int place_in(int part, int row) const {
    return row + (row < chunk ? part : 2 * parts - 2 - part) * chunk;
  }
  /// Rows of a part at places before this one.
  [[nodiscard]] __device__ int rows_before(int part, int place) const {
    const int of_first = min(max(place - part * chunk, 0), chunk);
    const int of_second = min(max(place - (2 * parts - 1 - part) * chunk, 0), chunk);
    return of_first + of_second;
  }
  [[nodiscard]] __device__ bool has_all_keys() const { return key_part == kAllParts; }
  /// Whether the queries' own tokens are among the keys.
  [[nodiscard]] __device__ bool has_own_keys() const {
    return has_all_keys() || key_part == query_part;
  }
  [[nodiscard]] __device__ int query_place(int row) const { return place_in(query_part, row); }
  /// Queries at places before this one.
  [[nodiscard]] __device__ int queries_before(int place) const {
    return rows_before(query_part, place);
  }
  /// The number of the first key at this place or after it.
  [[nodiscard]] __device__ int keys_before(int place) const {
    return has_all_keys() ? place : rows_before(key_part, place);
  }
  /// The row of the key with a number.
  [[nodiscard]] __device__ int key_row(int number) const {
    if (!has_all_keys()) return number;
    const int of_chunk = number / chunk;
    const int moved = of_chunk < parts ? of_chunk : 4 * parts - 1 - 3 * of_chunk;
    return number + moved * chunk;
  }
  /// The place of a key's row.
  [[nodiscard]] __device__ int key_place(int row) const {
    if (!has_all_keys()) return place_in(key_part, row);
    const int part = row / (2 * chunk);
    return place_in(part, row - part * 2 * chunk);
  }
};

[[nodiscard]] __device__ inline TileOrder tiles_of(const AttentionDims& dims, int rows,
                                                   int tile_rows) {
  return {rows / tile_rows, dims.heads / dims.tile_heads, dims.batch};
}

/// The next tile that no block has begun.
[[nodiscard]] __device__ inline int take_tile(int* begun) { return atomicAdd(begun, 1); }
/// Reads a value that one thread wrote to shared memory before it arrived at a barrier for which
/// this warp waited. The compiler knows that all lanes have the same value.
[[nodiscard]] __device__ inline int seen(const int& shared) {
  return __shfl_sync(~0U, *const_cast<const volatile int*>(&shared), 0);
}
/// 0 loads, 1 and 2 multiply.
[[nodiscard]] __device__ inline int own_warpgroup() {
  return __shfl_sync(~0U, static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0);
}

/// Position in a ring of one or two, and the parity of its rounds.
template <int count>
struct Stages {
  std::uint32_t stage = 0;
  std::uint32_t parity = 0;

  __device__ void next() {
    if constexpr (count == 1) {
      parity ^= 1U;
    } else {
      parity ^= stage;
      stage ^= 1U;
    }
  }
};
using TwoStages = Stages<2>;

/// The first rows of a head's tile that fill the map's boxes, from a token on.
template <int head_dim>
__device__ void load_head(const CUtensorMap& map, int head, int token, std::uint32_t to,
                          std::uint32_t box_bytes, std::uint32_t barrier) {
#pragma unroll
  for (int i = 0; i < kBoxes<head_dim>; ++i)
    load_box(map, i * kBoxColumns, head, token, to + static_cast<std::uint32_t>(i) * box_bytes,
             barrier);
}

__device__ inline float exp2_of(float x) {
  float y = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
/// tanh(element * scale / cap) = 1 - 2 / (1 + exp2(element * slope)), with
/// slope = 2 log2(e) scale / cap. Its error is some 1e-7, where tanh.approx has 5e-4 of the result.
__device__ inline float share_of_cap(float element, float slope) {
  float y = 0;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(1 + exp2_of(element * slope)));
  return 1 - 2 * y;
}
[[nodiscard]] __device__ inline float cap_slope(const AttentionDims& dims) {
  return 2 * kLog2E * dims.scale / dims.cap;
}
__device__ inline std::uint32_t pack(float low, float high) {
  std::uint32_t both = 0;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

/// Sums as bf16, in steps of 16 columns.
template <int n>
__device__ void narrow(const float (&sums)[n], std::uint32_t (&to)[n / 8][4]) {
#pragma unroll
  for (int step = 0; step < n / 8; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      to[step][i] = pack(sums[8 * step + 2 * i], sums[8 * step + 2 * i + 1]);
}

/// d = a b^T over a head's columns, in boxes of `bytes` bytes; closes the group.
template <int head_dim, int n>
__device__ void multiply_heads(float (&d)[n], std::uint32_t a, std::uint32_t a_box, std::uint32_t b,
                               std::uint32_t b_box) {
#pragma unroll
  for (std::uint32_t i = 0; i < head_dim / 16; ++i)
    multiply(d, matrix_of(a + i / 4 * a_box + i % 4 * 32),
             matrix_of(b + i / 4 * b_box + i % 4 * 32), i > 0);
  commit_products();
}
/// d += a b, with a rounded to bf16; b has a row for each column of a, in boxes of `box_rows` rows.
/// Closes the group.
template <int box_rows, int n, int steps>
__device__ void multiply_rows(float (&d)[n], const std::uint32_t (&a)[steps][4], std::uint32_t b) {
#pragma unroll
  for (std::uint32_t i = 0; i < steps; ++i)
    multiply(d, a[i], matrix_of<box_rows>(b + i * 16 * kRowBytes));
  commit_products();
}

/// Stores 64 x 16 of a warpgroup's sums as bf16 in swizzled rows of 128 bytes from `tile` on: this
/// thread's part of the columns from 16 * step on. `tile` is a multiple of 1024 bytes.
__device__ inline void store_step(std::uint32_t tile, int step, const std::uint32_t (&values)[4]) {
  const std::uint32_t lane = threadIdx.x % 32;
  const std::uint32_t row = threadIdx.x % kWarpgroupThreads / 32 * 16 + lane % 16;
  const std::uint32_t piece = (2 * static_cast<std::uint32_t>(step) + lane / 16) ^ (row & 7U);
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(
                   tile + row * kRowBytes + piece * 16),
               "r"(values[0]), "r"(values[1]), "r"(values[2]), "r"(values[3])
               : "memory");
}

// Named barriers; 0 is __syncthreads().
template <int name, int threads>
__device__ void meet() {
  asm volatile("bar.sync %0, %1;" ::"n"(name), "n"(threads) : "memory");
}
template <int name, int threads>
__device__ void pass_on() {
  asm volatile("bar.arrive %0, %1;" ::"n"(name), "n"(threads) : "memory");
}
inline constexpr int kBothMeet = 1;  // the multiplying warpgroups
inline constexpr int kOwnMeet = 2;   // 2 and 3: one warpgroup each
inline constexpr int kTurn = 4;      // 4 and 5: permission of one warpgroup to multiply

__device__ inline void meet_own(int warpgroup) {
  if (warpgroup == 0)
    meet<kOwnMeet, kWarpgroupThreads>();
  else
    meet<kOwnMeet + 1, kWarpgroupThreads>();
}

/// Commits the TMA stores that this thread began.
__device__ inline void commit_stores() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
/// Waits until the sources of the stores have been read, or until they are stored.
__device__ inline void wait_until_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}
__device__ inline void wait_until_stored() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

}  // namespace mfsdp::cuda
