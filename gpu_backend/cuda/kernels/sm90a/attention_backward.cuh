// The backward's kernels for heads of all sizes share this code: the passes before and after, sums
// in memory, and one thread that loads tiles.
#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/grouped_tiles.cuh"
#include "gpu_backend/cuda/kernels/sm90a/attention.cuh"

namespace mfsdp::cuda {

inline constexpr int kQueries = kWarpgroupQueries;
inline constexpr std::uint32_t kQueryBox = kQueries * kRowBytes;
inline constexpr std::uint32_t kStatistics = 2 * kQueries * sizeof(float);

/// Number of blocks of 64 rows.
template <int head_dim>
inline constexpr int kSums = 64 * head_dim;

/// Memory that the kernels share.
struct Sums {
  float* query = nullptr;  ///< by [batch, heads, seq / 64]: 64 rows in the order of registers
  float* key = nullptr;    ///< likewise by key heads, where several query heads share one
  float* value = nullptr;
  int* begun = nullptr;  ///< tiles

  Sums(const kernels::AttentionBackward<Bf16>& k, std::int64_t key_sums)
      : query(k.d_query_sum),
        key(reinterpret_cast<float*>(k.workspace.data() + kWarpgroupCounterBytes)),
        value(key + key_sums),
        begun(reinterpret_cast<int*>(k.workspace.data())) {}
};

/// L * log2(e) and D of a block of queries, 64 floats each. They are stored in rows of dQ, which
/// are written last.
[[nodiscard]] __device__ inline float* statistics_of(const kernels::HeadView<Bf16>& d_query,
                                                     int batch, int head, int block) {
  Bf16* const row =
      d_query.at(batch, 0) +
      static_cast<std::int64_t>(block * kQueries + head % kQueries) * d_query.position;
  return reinterpret_cast<float*>(row) + head / kQueries * (2 * kQueries);
}

/// Whether several tiles have the same key head, so that sums of its dK and dV are in memory.
[[nodiscard]] __host__ __device__ inline bool shares_sums(const AttentionDims& dims) {
  return dims.heads > dims.kv_heads * dims.tile_heads;
}

// ---- before and after --------------------------------------------------------------------------

inline constexpr int kPrepareThreads = 256;

/// Number of blocks of 64 rows.
template <int head_dim>
__device__ void clear(float* sums) {
  auto* const fours = reinterpret_cast<float4*>(sums);
#pragma unroll
  for (int i = 0; i < kSums<head_dim> / 4 / kPrepareThreads; ++i)
    fours[i * kPrepareThreads + static_cast<int>(threadIdx.x)] = float4{0, 0, 0, 0};
}

/// Two neighbours of a row.
__device__ inline float2 pair_of(const Bf16* row, int pair) {
  return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(row)[pair]);
}

/// One block: 64 tokens of a head.
template <int head_dim>
__global__ void __launch_bounds__(kPrepareThreads)
    prepare(const AttentionDims dims, const kernels::AttentionBackward<Bf16> k, const Sums to) {
  constexpr int kWarps = kPrepareThreads / kWarp;
  const int block = static_cast<int>(blockIdx.x);
  const int head = static_cast<int>(blockIdx.y);
  const int batch = static_cast<int>(blockIdx.z);
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto clear_block = [&](float* sums, int heads, int of) {
    clear<head_dim>(sums + dims.block_at(dims.rows, heads, batch, of, block) * kSums<head_dim>);
  };
  clear_block(to.query, dims.heads, head);
  const int of_group = head % dims.group();
  if (shares_sums(dims) && of_group < 2)
    clear_block(of_group == 0 ? to.key : to.value, dims.kv_heads, head / dims.group());
  if (block + head + batch == 0 && threadIdx.x == 0) *to.begun = 0;
  float* const statistics = statistics_of(k.d_query, batch, head, block);
#pragma unroll
  for (int i = 0; i < kQueries / kWarps; ++i) {
    const int row = warp * (kQueries / kWarps) + i;
    const std::int64_t position = block * kQueries + row;
    const auto row_of = [&](const kernels::HeadView<const Bf16>& view) {
      return view.at(batch, head) + position * view.position;
    };
    float sum = 0;
#pragma unroll
    for (int first = 0; first < head_dim / 2; first += kWarp) {
      const int pair = first + lane;
      if (head_dim / 2 % kWarp != 0 && pair >= head_dim / 2) continue;
      const float2 x = pair_of(row_of(k.output), pair);
      const float2 y = pair_of(row_of(k.d_output), pair);
      sum += x.x * y.x + x.y * y.y;
    }
#pragma unroll
    for (int other = kWarp / 2; other > 0; other /= 2) sum += __shfl_xor_sync(~0U, sum, other);
    if (lane == 0) {
      statistics[row] =
          kLog2E *
          k.log_sum_exp[(static_cast<std::int64_t>(batch) * dims.rows + position) * dims.heads +
                        head];
      statistics[kQueries + row] = sum;
    }
  }
}

/// Likewise for queries, then for keys and values. Each thread has 8 columns of two rows: four
/// threads' registers of one block of 8 columns.
template <int head_dim>
__global__ void __launch_bounds__(kPrepareThreads)
    finish(const AttentionDims dims, const Sums from, const kernels::HeadView<Bf16> d_query,
           const kernels::HeadView<Bf16> d_key, const kernels::HeadView<Bf16> d_value) {
  constexpr int kBlocks = head_dim / 8;
  constexpr int kPlaces = kQueries / 2;  // pairs of rows
  constexpr int kItems = kBlocks * kPlaces;
  const int block = static_cast<int>(blockIdx.x);
  const int batch = static_cast<int>(blockIdx.z);
  int head = static_cast<int>(blockIdx.y);
  int heads = dims.heads;
  const float* all = from.query;
  kernels::HeadView<Bf16> to = d_query;
  float scale = dims.scale;
  if (head >= dims.heads) {
    head -= dims.heads;
    heads = dims.kv_heads;
    const bool of_keys = head < heads;
    all = of_keys ? from.key : from.value;
    to = of_keys ? d_key : d_value;
    if (!of_keys) {
      head -= heads;
      scale = 1;
    }
  }
  const auto* const sums = reinterpret_cast<const float4*>(
      all + dims.block_at(dims.rows, heads, batch, head, block) * kSums<head_dim>);
#pragma unroll
  for (int first = 0; first < kItems; first += kPrepareThreads) {
    const int item = first + static_cast<int>(threadIdx.x);
    if (kItems % kPrepareThreads != 0 && item >= kItems) break;
    const int columns = item % kBlocks;
    const int place = item / kBlocks;
    const float4* const place_sums = sums + columns * kWarpgroupThreads + place * 4;
    std::uint32_t low[4];
    std::uint32_t high[4];
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      const float4 v = place_sums[lane];
      low[lane] = pack(v.x * scale, v.y * scale);
      high[lane] = pack(v.z * scale, v.w * scale);
    }
    const int row = place / 8 * 16 + place % 8;
    Bf16* const at = to.at(batch, head) +
                     static_cast<std::int64_t>(block * kQueries + row) * to.position + columns * 8;
    *reinterpret_cast<uint4*>(at) = uint4{low[0], low[1], low[2], low[3]};
    *reinterpret_cast<uint4*>(at + 8 * to.position) = uint4{high[0], high[1], high[2], high[3]};
  }
}

// ---- tiles -------------------------------------------------------------------------------------

/// A tile of keys for the multiplying warpgroups, in shared memory.
struct BackwardWork {
  int tile;    ///< its number; -1 after the last one
  int blocks;  ///< of queries, from the diagonal on, that see any of its keys
  int masked;  ///< of these, the last ones: not all of their queries see all earlier keys
  // Of a part:
  int first_block;  ///< of these blocks
  int place;        ///< of the first key
  int ahead;        ///< that key's distance after the first query, or kNoDiagonal
};
/// The distance where all queries of the blocks are later than all keys of the tile.
inline constexpr int kNoDiagonal = -2 * kWarpgroupTile;

/// Barriers: a stage is full when its bytes have arrived, and empty when every multiplying warp has
/// finished with it. Keys and values of a tile are one stage.
struct BackwardBarriers {
  static constexpr int kCount = 10;
  std::uint32_t first = 0;

  [[nodiscard]] __device__ std::uint32_t keys() const { return first; }
  [[nodiscard]] __device__ std::uint32_t keys_empty() const { return first + 8; }
  [[nodiscard]] __device__ std::uint32_t query(std::uint32_t stage) const {
    return first + 16 + stage * 8;
  }
  [[nodiscard]] __device__ std::uint32_t query_empty(std::uint32_t stage) const {
    return first + 32 + stage * 8;
  }
  [[nodiscard]] __device__ std::uint32_t output(std::uint32_t stage) const {
    return first + 48 + stage * 8;
  }
  [[nodiscard]] __device__ std::uint32_t output_empty(std::uint32_t stage) const {
    return first + 64 + stage * 8;
  }
  __device__ void init() const {
    init_barrier(keys(), 1);
    init_barrier(keys_empty(), kAttentionWarps);
    for (std::uint32_t i = 0; i < 2; ++i) {
      init_barrier(query(i), 1);
      init_barrier(query_empty(i), kAttentionWarps);
      init_barrier(output(i), 1);
      init_barrier(output_empty(i), kAttentionWarps);
    }
    publish_barriers();
  }
};

/// One thread takes tiles and loads them by TMA. At: the kernel's layout of shared memory.
template <int head_dim, Sight sight, class At>
__device__ void load(const AttentionDims& dims, const AttentionBackwardMaps& maps,
                     const kernels::HeadView<Bf16>& d_query, int* begun, std::uint32_t memory,
                     const BackwardBarriers& barriers, volatile BackwardWork& work) {
  constexpr int kKeys = attention_keys(head_dim);
  constexpr std::uint32_t kKeyBox = kKeys * kRowBytes;
  const TileOrder tiles = tiles_of(dims, dims.keys_of<sight>(), kKeys);
  TwoStages at;
  for (std::uint32_t parity = 1;; parity ^= 1U) {
    const int index = take_tile(begun);
    wait(barriers.keys_empty(), parity);
    work.tile = index < tiles.size() ? index : -1;
    if (index >= tiles.size()) return arrive(barriers.keys());
    const AttentionTile tile = tiles[index];
    const int first_head = tile.head * dims.tile_heads;
    const int kv_head = first_head / dims.group();
    const int key = tile.index * kKeys;
    int blocks = (dims.seq - key) / kQueries;
    if constexpr (sight == Sight::bounded) {
      const int block = key / kQueries;
      const int end = dims.end_of_sight(tile.batch, key + kKeys - 1);
      blocks = (end + kQueries - 1) / kQueries - block;
      work.masked = blocks + block - dims.end_of_sight(tile.batch, key) / kQueries;
    }
    int first_block = 0;
    if constexpr (sight == Sight::part) {
      const int place = dims.key_place(key);
      const int begin = dims.queries_before(place);
      const auto end_of = [&](int of_key) {
        return dims.queries_before(dims.end_of_sight(tile.batch, of_key));
      };
      first_block = begin / kQueries;
      blocks = max((end_of(place + kKeys - 1) + kQueries - 1) / kQueries - first_block, 0);
      work.masked = blocks + first_block - end_of(place) / kQueries;
      work.first_block = first_block;
      work.place = place;
      work.ahead = dims.queries_before(place + 1) > begin ? 0 : kNoDiagonal;
    }
    work.blocks = blocks;
    if (sight == Sight::part && blocks == 0) {
      arrive(barriers.keys());
      continue;
    }
    const int first_key = tile.batch * dims.keys_of<sight>() + key;
    int first = first_key;  // query
    if constexpr (sight == Sight::part) first = tile.batch * dims.rows + first_block * kQueries;
    const int end = first + blocks * kQueries;
    arrive_expecting(barriers.keys(), 2 * At::kKeyTile);
    load_head<head_dim>(maps.key, kv_head, first_key, memory + At::kKeyAt, kKeyBox,
                        barriers.keys());
    for (int head = first_head; head < first_head + dims.tile_heads; ++head) {
      const float* statistics =
          statistics_of(d_query, tile.batch, head,
                        sight == Sight::part ? first_block : tile.index * (kKeys / kQueries));
      for (int token = first; token < end; token += kQueries, at.next()) {
        wait(barriers.query_empty(at.stage), at.parity ^ 1U);
        arrive_expecting(barriers.query(at.stage), At::kQueryTile + kStatistics);
        load_head<head_dim>(maps.query, head, token,
                            memory + At::kQueryAt + at.stage * At::kQueryTile, kQueryBox,
                            barriers.query(at.stage));
        load_bytes(statistics, kStatistics, memory + At::kStatisticsAt + at.stage * kStatistics,
                   barriers.query(at.stage));
        statistics += d_query.position * (kQueries / 2);  // bf16 to floats
        if (head == first_head && token == first)
          load_head<head_dim>(maps.value, kv_head, first_key, memory + At::kValueAt, kKeyBox,
                              barriers.keys());
        wait(barriers.output_empty(at.stage), at.parity ^ 1U);
        arrive_expecting(barriers.output(at.stage), At::kQueryTile);
        load_head<head_dim>(maps.d_output, head, token,
                            memory + At::kOutputAt + at.stage * At::kQueryTile, kQueryBox,
                            barriers.output(at.stage));
      }
    }
  }
}

// ---- probabilities and their gradients ---------------------------------------------------------

// For n / 4 blocks of 8 queries a thread has p[4 j + 2 r + e]: query 8 j + e from its first one on,
// key 8 r.

/// Scores that are masked: their exponentials are zero. A capped one is finite, as 1 - t^2 is.
template <Cap cap>
inline constexpr float kMasked = cap == Cap::capped ? -1e4F : -INFINITY;

/// Statistics of this thread's two queries in every 8.
__device__ inline float2 two_of(std::uint32_t statistics, int columns) {
  float2 both;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(both.x), "=f"(both.y)
               : "r"(statistics + static_cast<std::uint32_t>(columns) * 32 + threadIdx.x % 4 * 8));
  return both;
}

/// Masks keys after the query. `ahead`: the distance of this thread's first key after its first
/// query.
template <Cap cap, int n>
__device__ void mask_later(float (&p)[n], int ahead) {
#pragma unroll
  for (int j = 0; j < n / 4; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (ahead + e / 2 * 8 > 8 * j + e % 2) p[4 * j + e] = kMasked<cap>;
}
/// Masks keys before the first that the query sees. `query`: the place of this thread's first one;
/// `ahead`: the distance of its first key's place.
template <Cap cap, int n>
__device__ void mask_earlier(float (&p)[n], const AttentionDims& dims, int batch, int query,
                             int ahead) {
#pragma unroll
  for (int j = 0; j < n / 4; ++j)
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      int before = dims.window - 1;  // tokens that the query sees before its own
      if (dims.positions != nullptr) before = min(before, dims.position(batch, query + 8 * j + e));
#pragma unroll
      for (int r = 0; r < 2; ++r)
        if (8 * j + e - (ahead + 8 * r) > before) p[4 * j + 2 * r + e] = kMasked<cap>;
    }
}

/// Replaces elements of Q K^T by shares of the cap.
template <Cap cap, int n>
__device__ void cap_scores(float (&p)[n], const AttentionDims& dims) {
  if constexpr (cap == Cap::capped) {
    const float slope = cap_slope(dims);
#pragma unroll
    for (float& score : p) score = share_of_cap(score, slope);
  }
}

/// p = exp2(p * scale - L), also as bf16 in steps of 16 queries; capped: p * (1 - t^2), the other
/// factor of dS, is kept instead.
template <Cap cap, int n>
__device__ void probabilities(float (&p)[n], float scale, std::uint32_t statistics,
                              std::uint32_t (&to)[n / 8][4]) {
#pragma unroll
  for (int j = 0; j < n / 4; ++j) {
    const float2 l = two_of(statistics, j);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      float& first = p[4 * j + 2 * r];
      float& second = p[4 * j + 2 * r + 1];
      const float x = exp2_of(first * scale - l.x);
      const float y = exp2_of(second * scale - l.y);
      to[j / 2][j % 2 * 2 + r] = pack(x, y);
      first = cap == Cap::capped ? x * (1 - first * first) : x;
      second = cap == Cap::capped ? y * (1 - second * second) : y;
    }
  }
}

/// dS^T = p * (dp - D) as bf16.
template <int n>
__device__ void score_gradients(const float (&p)[n], const float (&dp)[n], std::uint32_t statistics,
                                std::uint32_t (&to)[n / 8][4]) {
#pragma unroll
  for (int j = 0; j < n / 4; ++j) {
    const float2 d = two_of(statistics, j);
    to[j / 2][j % 2 * 2] = pack(p[4 * j] * (dp[4 * j] - d.x), p[4 * j + 1] * (dp[4 * j + 1] - d.y));
    to[j / 2][j % 2 * 2 + 1] =
        pack(p[4 * j + 2] * (dp[4 * j + 2] - d.x), p[4 * j + 3] * (dp[4 * j + 3] - d.y));
  }
}

// ---- sums --------------------------------------------------------------------------------------

/// Adds a thread's registers to the sums of 64 rows, from its warpgroup's first column on.
template <int n>
__device__ void add_to(float* sums, const float (&values)[n]) {
  const std::uint32_t thread = threadIdx.x % kWarpgroupThreads;
#pragma unroll
  for (std::uint32_t i = 0; i < n / 4; ++i)
    asm volatile("red.global.add.v4.f32 [%0], {%1, %2, %3, %4};" ::"l"(
                     sums + (i * kWarpgroupThreads + thread) * 4),
                 "f"(values[4 * i]), "f"(values[4 * i + 1]), "f"(values[4 * i + 2]),
                 "f"(values[4 * i + 3])
                 : "memory");
}

template <int n>
__device__ void store_rows(const float (&sums)[n], float scale, Bf16* to, std::int64_t position) {
#pragma unroll
  for (int j = 0; j < n / 4; ++j)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      *reinterpret_cast<std::uint32_t*>(to + 8 * r * position + 8 * j) =
          pack(sums[4 * j + 2 * r] * scale, sums[4 * j + 2 * r + 1] * scale);
}

// ---- launches ----------------------------------------------------------------------------------

/// Query heads of a tile, with `blocks` thread blocks that take tiles. All heads of a group in one
/// tile save its sums of dK and dV in memory, unless too few tiles would remain. The unit of time is
/// a block of queries; 2 and 4 of them are what a tile takes besides. Tiles with a window are equally
/// long. Documents have an unknown mean, here 1024 tokens, and any order. In whole attention the
/// longest tile, which is the first, takes twice the mean; more than two heads of 256 would not leave
/// their sums of dQ in the L2 cache. A tile of a part has all heads of a group: its workspace has no
/// sums of dK and dV.
template <int head_dim>
int tile_heads_of(const AttentionDims& dims, int blocks) {
  constexpr int kDocument = 1024;
  const int group = dims.heads / dims.kv_heads;
  const int keys = attention_keys(head_dim);
  const bool documents = dims.positions != nullptr;
  const bool whole = !documents && dims.window == dims.seq;
  int seers = dims.window;  // of a key, in the mean
  if (documents) seers = std::min(seers, kDocument / 2);
  if (whole) seers = dims.seq / 2;
  int best = 1;
  double least = INFINITY;
  for (int heads = 1; heads <= (whole && head_dim == 256 ? std::min(group, 2) : group); ++heads) {
    if (group % heads != 0) continue;
    const double tiles = static_cast<double>(dims.seq / keys) * (dims.heads / heads) * dims.batch;
    const double of_block = tiles / blocks;
    const double of_tile =
        static_cast<double>(heads) * (keys + seers) / kQueries + (heads == group ? 2 : 4);
    double time = std::ceil(of_block) * of_tile;
    if (documents) time = (of_block + 1) * of_tile;
    if (whole) time = std::max(of_block, 2.0) * of_tile;
    if (time > least) continue;
    least = time;
    best = heads;
  }
  return best;
}

/// The three passes; `kernel` is the one between. `bytes`: of its shared memory. `takes_heads`: tiles
/// of several query heads are possible.
template <int head_dim, bool takes_heads, class Kernel>
Result<void> run_backward(Kernel kernel, int bytes, const kernels::AttentionBackward<Bf16>& k,
                          const AttentionBackwardMaps& maps, cudaStream_t stream) {
  MFSDP_LET(grid, staying_grid(kernel, kAttentionThreads, static_cast<std::size_t>(bytes)));
  AttentionDims dims(k.shape);
  if (takes_heads) dims.tile_heads = tile_heads_of<head_dim>(dims, static_cast<int>(grid.x));
  if (!k.shape.share.is_whole()) dims.tile_heads = dims.heads / dims.kv_heads;
  const Sums sums(k, k.shape.batch * k.shape.seq_len * k.shape.kv_heads * head_dim);
  const auto blocks = [&](int heads) {
    return dim3(static_cast<unsigned>(dims.rows / kQueries), static_cast<unsigned>(heads),
                static_cast<unsigned>(dims.batch));
  };
  prefer_cache<prepare<head_dim>>();
  prepare<head_dim><<<blocks(dims.heads), kPrepareThreads, 0, stream>>>(dims, k, sums);
  MFSDP_TRY(launched("attention backward, prepare"));
  kernel<<<grid, kAttentionThreads, bytes, stream>>>(dims, maps, sums, k.d_query, k.d_key,
                                                     k.d_value);
  MFSDP_TRY(launched("attention backward"));
  prefer_cache<finish<head_dim>>();
  finish<head_dim><<<blocks(dims.heads + (shares_sums(dims) ? 2 * dims.kv_heads : 0)),
                     kPrepareThreads, 0, stream>>>(dims, sums, k.d_query, k.d_key, k.d_value);
  return launched("attention backward, finish");
}

}  // namespace mfsdp::cuda
