// The backward of attention by warpgroups: a block processes tiles of 128 keys and one query head.
// Each of two warpgroups keeps the sums of dK and dV of 64 of the keys, and iterates over blocks of
// 64 queries. A third warpgroup loads the next block by TMA. The order of work for a block of
// queries in a warpgroup:
//
//   tensor cores                  meanwhile
//   S^T = K Q^T
//   dP^T = V dO^T                 P^T = exp(S^T - L), masked, as bf16
//   dV += P^T dO                  dS^T = P^T * (dP^T - D) as bf16, kept and to shared memory
//                                 both warpgroups synchronise, because dQ needs all keys
//   dQ = dS K, half of the columns
//   dK += dS^T Q                  dQ is added to its sums in memory
//
// Two choices make it fast. Sums go directly from registers to memory, because shared memory is as
// busy as the tensor cores. Heads are processed one after another, so that their sums stay in the
// L2 cache.
#include <cuda_bf16.h>

#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/grouped_tiles.cuh"
#include "gpu_backend/cuda/kernels/sm90a/attention.cuh"

namespace mfsdp::cuda {
namespace {

constexpr int kKeys = kWarpgroupTile;
constexpr int kQueries = kWarpgroupQueries;
constexpr std::uint32_t kKeyBox = kKeys * kRowBytes;
constexpr std::uint32_t kQueryBox = kQueries * kRowBytes;
constexpr std::uint32_t kStatistics = 2 * kQueries * sizeof(float);

/// Shared memory from an aligned address on; two stages of everything except keys and values.
template <int head_dim>
struct Layout {
  static constexpr std::uint32_t kKeyTile = head_dim / kBoxColumns * kKeyBox;
  static constexpr std::uint32_t kQueryTile = head_dim / kBoxColumns * kQueryBox;
  static constexpr std::uint32_t kKeyAt = 0;
  static constexpr std::uint32_t kValueAt = kKeyAt + kKeyTile;
  static constexpr std::uint32_t kQueryAt = kValueAt + kKeyTile;
  static constexpr std::uint32_t kOutputAt = kQueryAt + 2 * kQueryTile;
  static constexpr std::uint32_t kScoresAt = kOutputAt + 2 * kQueryTile;  // dS^T of 128 keys
  static constexpr std::uint32_t kStatisticsAt = kScoresAt + 2 * kKeyBox;
  static constexpr int kBytes = kStatisticsAt + 2 * kStatistics + kAlignment;
};
/// Number of blocks of 64 rows.
template <int head_dim>
constexpr int kSums = 64 * head_dim;

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
[[nodiscard]] __device__ float* statistics_of(const kernels::HeadView<Bf16>& d_query, int batch,
                                              int head, int block) {
  Bf16* const row =
      d_query.at(batch, 0) +
      static_cast<std::int64_t>(block * kQueries + head % kQueries) * d_query.position;
  return reinterpret_cast<float*>(row) + head / kQueries * (2 * kQueries);
}

// ---- before and after --------------------------------------------------------------------------

constexpr int kPrepareThreads = 256;

/// Number of blocks of 64 rows.
template <int head_dim>
__device__ void clear(float* sums) {
  auto* const fours = reinterpret_cast<float4*>(sums);
#pragma unroll
  for (int i = 0; i < kSums<head_dim> / 4 / kPrepareThreads; ++i)
    fours[i * kPrepareThreads + static_cast<int>(threadIdx.x)] = float4{0, 0, 0, 0};
}

/// A lane's elements of a row.
__device__ float2 pair_of(const Bf16* row, int lane, int i) {
  return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162*>(row)[lane + i * kWarp]);
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
    clear<head_dim>(sums + dims.block_at(heads, batch, of, block) * kSums<head_dim>);
  };
  clear_block(to.query, dims.heads, head);
  const int of_group = head % dims.group();
  if (dims.group() > 1 && of_group < 2)
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
    for (int pair = 0; pair < head_dim / 2 / kWarp; ++pair) {
      const float2 x = pair_of(row_of(k.output), lane, pair);
      const float2 y = pair_of(row_of(k.d_output), lane, pair);
      sum += x.x * y.x + x.y * y.y;
    }
#pragma unroll
    for (int other = kWarp / 2; other > 0; other /= 2) sum += __shfl_xor_sync(~0U, sum, other);
    if (lane == 0) {
      statistics[row] =
          kLog2E *
          k.log_sum_exp[(static_cast<std::int64_t>(batch) * dims.seq + position) * dims.heads +
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
  constexpr int kBlocks = 8;             // of 8 columns, of a box
  constexpr int kPlaces = kQueries / 2;  // pairs of rows
  constexpr int kItems = head_dim / kBoxColumns * kBlocks * kPlaces;
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
      all + dims.block_at(heads, batch, head, block) * kSums<head_dim>);
#pragma unroll
  for (int i = 0; i < kItems / kPrepareThreads; ++i) {
    const int item = i * kPrepareThreads + static_cast<int>(threadIdx.x);
    const int columns = item % kBlocks;
    const int place = item / kBlocks % kPlaces;
    const int box = item / (kBlocks * kPlaces);
    const float4* const place_sums =
        sums + (box * kBlocks + columns) * kWarpgroupThreads + place * 4;
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
                     static_cast<std::int64_t>(block * kQueries + row) * to.position +
                     box * kBoxColumns + columns * 8;
    *reinterpret_cast<uint4*>(at) = uint4{low[0], low[1], low[2], low[3]};
    *reinterpret_cast<uint4*>(at + 8 * to.position) = uint4{high[0], high[1], high[2], high[3]};
  }
}

// ---- the gradients -----------------------------------------------------------------------------

/// Barriers: a stage is full when its bytes have arrived, and empty when every multiplying warp has
/// finished with it. Keys and values of a tile are one stage.
struct Barriers {
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
};
constexpr int kBarriers = 10;

/// One thread takes tiles and loads them by TMA; tile -1 marks the end.
template <int head_dim>
__device__ void load(const AttentionDims& dims, const AttentionBackwardMaps& maps,
                     const kernels::HeadView<Bf16>& d_query, int* begun, std::uint32_t memory,
                     const Barriers& barriers, volatile int& tile_index) {
  using At = Layout<head_dim>;
  const TileOrder tiles = tiles_of(dims, kKeys);
  TwoStages at;
  for (std::uint32_t parity = 1;; parity ^= 1U) {
    const int index = take_tile(begun);
    wait(barriers.keys_empty(), parity);
    tile_index = index < tiles.size() ? index : -1;
    if (index >= tiles.size()) return arrive(barriers.keys());
    const AttentionTile tile = tiles[index];
    const int kv_head = tile.head / dims.group();
    const int first = tile.batch * dims.seq + tile.index * kKeys;
    const int end = (tile.batch + 1) * dims.seq;
    const float* statistics =
        statistics_of(d_query, tile.batch, tile.head, tile.index * (kKeys / kQueries));
    arrive_expecting(barriers.keys(), 2 * At::kKeyTile);
    load_head<head_dim>(maps.key, kv_head, first, memory + At::kKeyAt, kKeyBox, barriers.keys());
    for (int token = first; token < end; token += kQueries, at.next()) {
      wait(barriers.query_empty(at.stage), at.parity ^ 1U);
      arrive_expecting(barriers.query(at.stage), At::kQueryTile + kStatistics);
      load_head<head_dim>(maps.query, tile.head, token,
                          memory + At::kQueryAt + at.stage * At::kQueryTile, kQueryBox,
                          barriers.query(at.stage));
      load_bytes(statistics, kStatistics, memory + At::kStatisticsAt + at.stage * kStatistics,
                 barriers.query(at.stage));
      statistics += d_query.position * (kQueries / 2);  // bf16 to floats
      if (token == first)
        load_head<head_dim>(maps.value, kv_head, first, memory + At::kValueAt, kKeyBox,
                            barriers.keys());
      wait(barriers.output_empty(at.stage), at.parity ^ 1U);
      arrive_expecting(barriers.output(at.stage), At::kQueryTile);
      load_head<head_dim>(maps.d_output, tile.head, token,
                          memory + At::kOutputAt + at.stage * At::kQueryTile, kQueryBox,
                          barriers.output(at.stage));
    }
  }
}

/// Statistics of this thread's two queries in every 8.
__device__ float2 two_of(std::uint32_t statistics, int columns) {
  float2 both;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(both.x), "=f"(both.y)
               : "r"(statistics + static_cast<std::uint32_t>(columns) * 32 + threadIdx.x % 4 * 8));
  return both;
}

/// p = exp2(p * scale - L).
__device__ void probabilities(float (&p)[32], float scale, std::uint32_t statistics) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 l = two_of(statistics, j);
    p[4 * j] = exp2_of(p[4 * j] * scale - l.x);
    p[4 * j + 1] = exp2_of(p[4 * j + 1] * scale - l.y);
    p[4 * j + 2] = exp2_of(p[4 * j + 2] * scale - l.x);
    p[4 * j + 3] = exp2_of(p[4 * j + 3] * scale - l.y);
  }
}

/// Sets keys after the query to zero. `ahead`: the distance of this thread's first key after the
/// query.
__device__ void mask(float (&p)[32], int ahead) {
#pragma unroll
  for (int j = 0; j < 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (ahead + e / 2 * 8 > 8 * j + e % 2) p[4 * j + e] = 0;
}

/// dS^T = p * (dp - D) as bf16.
__device__ void score_gradients(const float (&p)[32], const float (&dp)[32],
                                std::uint32_t statistics, std::uint32_t (&to)[4][4]) {
#pragma unroll
  for (int j = 0; j < 8; ++j) {
    const float2 d = two_of(statistics, j);
    to[j / 2][j % 2 * 2] = pack(p[4 * j] * (dp[4 * j] - d.x), p[4 * j + 1] * (dp[4 * j + 1] - d.y));
    to[j / 2][j % 2 * 2 + 1] =
        pack(p[4 * j + 2] * (dp[4 * j + 2] - d.x), p[4 * j + 3] * (dp[4 * j + 3] - d.y));
  }
}

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

template <int head_dim>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    gradients(const AttentionDims dims, const __grid_constant__ AttentionBackwardMaps maps,
              const Sums to, const kernels::HeadView<Bf16> d_query,
              const kernels::HeadView<Bf16> d_key, const kernels::HeadView<Bf16> d_value) {
  using At = Layout<head_dim>;
  extern __shared__ std::byte shared[];
  __shared__ std::uint64_t barrier_memory[kBarriers];
  __shared__ int tile_index;
  const std::uint32_t memory = aligned_address_of(shared);
  const Barriers barriers{.first = address_of(barrier_memory)};
  if (threadIdx.x == 0) {
    init_barrier(barriers.keys(), 1);
    init_barrier(barriers.keys_empty(), kAttentionWarps);
    for (std::uint32_t i = 0; i < 2; ++i) {
      init_barrier(barriers.query(i), 1);
      init_barrier(barriers.query_empty(i), kAttentionWarps);
      init_barrier(barriers.output(i), 1);
      init_barrier(barriers.output_empty(i), kAttentionWarps);
    }
    publish_barriers();
  }
  __syncthreads();
  const int warpgroup = own_warpgroup() - 1;
  if (warpgroup < 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0)
      load<head_dim>(dims, maps, d_query, to.begun, memory, barriers, tile_index);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) % kWarpgroupThreads / kWarp;
  const int own_row = warpgroup * 64 + warp * 16 + lane / 4;
  const auto own = static_cast<std::uint32_t>(warpgroup);
  const std::uint32_t own_rows = own * 64 * kRowBytes;
  const std::uint32_t own_columns = own * (head_dim == 64 ? kRowBytes / 2 : kKeyBox);
  const float scale = dims.scale * kLog2E;
  const TileOrder tiles = tiles_of(dims, kKeys);
  constexpr int kDiagonal = kKeys / kQueries;  // blocks of queries on the diagonal

  TwoStages at;
  for (std::uint32_t parity = 0;; parity ^= 1U) {
    wait(barriers.keys(), parity);
    const int index = seen(tile_index);
    if (index < 0) return;
    AttentionTile tile = tiles[index];
    float sums_k[head_dim / 2];
    float sums_v[head_dim / 2];
#pragma unroll
    for (int i = 0; i < head_dim / 2; ++i) sums_k[i] = sums_v[i] = 0;
    float* sums_q =
        to.query +
        dims.block_at(dims.heads, tile.batch, tile.head, tile.index * kDiagonal) * kSums<head_dim> +
        warpgroup * (kSums<head_dim> / 2);
    int left = dims.seq / kQueries - tile.index * kDiagonal;
    for (int ahead = own_row - lane % 4 * 2; left > 0; --left, ahead -= kQueries) {
      const std::uint32_t query = memory + At::kQueryAt + at.stage * At::kQueryTile;
      const std::uint32_t output = memory + At::kOutputAt + at.stage * At::kQueryTile;
      const std::uint32_t numbers = memory + At::kStatisticsAt + at.stage * kStatistics;
      const std::uint32_t scores = memory + At::kScoresAt + at.stage * kKeyBox;
      float p[32];  // S^T, then P^T
      float x[32];  // dP^T
      wait(barriers.query(at.stage), at.parity);
      begin_products();
      multiply_heads<head_dim>(p, memory + At::kKeyAt + own_rows, kKeyBox, query, kQueryBox);
      wait(barriers.output(at.stage), at.parity);
      multiply_heads<head_dim>(x, memory + At::kValueAt + own_rows, kKeyBox, output, kQueryBox);
      wait_for_products<1>();
      pin(p);
      probabilities(p, scale, numbers);
      if (ahead > -kQueries) mask(p, ahead);
      std::uint32_t narrowed[4][4];
      narrow(p, narrowed);
      begin_products();
      multiply_rows<kQueries>(sums_v, narrowed, output);
      wait_for_products<1>();
      pin(x);
      std::uint32_t d_scores[4][4];
      score_gradients(p, x, numbers + kStatistics / 2, d_scores);
#pragma unroll
      for (int step = 0; step < 4; ++step) store_step(scores + own_rows, step, d_scores[step]);
      publish_stores();
      meet<kBothMeet, 2 * kWarpgroupThreads>();
      float q[head_dim / 4];  // dQ
      begin_products();
#pragma unroll
      for (std::uint32_t i = 0; i < kKeys / 16; ++i)
        multiply_across(q, matrix_of(scores + i * 16 * kRowBytes),
                        matrix_of(memory + At::kKeyAt + own_columns + i * 16 * kRowBytes), i > 0);
      commit_products();
      wait_for_products<1>();
      if (lane == 0) arrive(barriers.output_empty(at.stage));
      multiply_rows<kQueries>(sums_k, d_scores, query);
      wait_for_products<1>();
      pin(q);
      add_to(sums_q, q);
      sums_q += kSums<head_dim>;
      wait_for_products<0>();
      if (lane == 0) arrive(barriers.query_empty(at.stage));
      at.next();
    }
    pin(sums_k);
    pin(sums_v);
    tile = tiles[seen(tile_index)];  // read again, so that it occupies no register
    if (lane == 0) arrive(barriers.keys_empty());
    const int kv_head = tile.head / dims.group();
    if (dims.group() > 1) {
      const std::int64_t sums =
          dims.block_at(dims.kv_heads, tile.batch, kv_head, tile.index * kDiagonal + warpgroup) *
          kSums<head_dim>;
      add_to(to.key + sums, sums_k);
      add_to(to.value + sums, sums_v);
      continue;
    }
    const auto place = [&](const kernels::HeadView<Bf16>& view) {
      return view.at(tile.batch, kv_head) +
             static_cast<std::int64_t>(tile.index * kKeys + own_row) * view.position + lane % 4 * 2;
    };
    store_rows(sums_k, dims.scale, place(d_key), d_key.position);
    store_rows(sums_v, 1, place(d_value), d_value.position);
  }
}

template <int head_dim>
Result<void> backward(const kernels::AttentionBackward<Bf16>& k, const AttentionBackwardMaps& maps,
                      cudaStream_t stream) {
  const AttentionDims dims(k.shape);
  const Sums sums(k, k.shape.batch * k.shape.seq_len * k.shape.kv_heads * head_dim);
  const bool shared = dims.heads > dims.kv_heads;  // several query heads share a key head
  const auto blocks = [&](int heads) {
    return dim3(static_cast<unsigned>(dims.seq / kQueries), static_cast<unsigned>(heads),
                static_cast<unsigned>(dims.batch));
  };
  prefer_cache<prepare<head_dim>>();
  prepare<head_dim><<<blocks(dims.heads), kPrepareThreads, 0, stream>>>(dims, k, sums);
  MFSDP_TRY(launched("attention backward, prepare"));
  constexpr int kBytes = Layout<head_dim>::kBytes;
  MFSDP_LET(grid, staying_grid(gradients<head_dim>, kAttentionThreads, kBytes));
  gradients<head_dim><<<grid, kAttentionThreads, kBytes, stream>>>(dims, maps, sums, k.d_query,
                                                                   k.d_key, k.d_value);
  MFSDP_TRY(launched("attention backward"));
  prefer_cache<finish<head_dim>>();
  finish<head_dim>
      <<<blocks(dims.heads + (shared ? 2 * dims.kv_heads : 0)), kPrepareThreads, 0, stream>>>(
          dims, sums, k.d_query, k.d_key, k.d_value);
  return launched("attention backward, finish");
}

}  // namespace

Result<void> warpgroup_attention_backward(const kernels::AttentionBackward<Bf16>& k,
                                          const AttentionBackwardMaps& maps, cudaStream_t stream) {
  return k.shape.head_dim == 64 ? backward<64>(k, maps, stream) : backward<128>(k, maps, stream);
}

}  // namespace mfsdp::cuda
