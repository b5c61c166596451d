// Attention by warpgroups: a block processes tiles of 128 queries of a head. Each of two warpgroups
// has 64 of the queries; a third one loads queries, and keys and values in tiles of 128, by TMA.
// The warpgroups alternate: while one multiplies, the other computes probabilities from logits.
//
//   tensor cores        meanwhile
//   S = Q K^T           the scores before: as bf16
//   O += P V            S: the largest by rows, exponentials and their sums
//                       O times what the largest became smaller by
#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/grouped_tiles.cuh"
#include "gpu_backend/cuda/kernels/sm90a/attention.cuh"

namespace mfsdp::cuda {
namespace {

constexpr int kTile = kWarpgroupTile;
constexpr std::uint32_t kBox = kTile * kRowBytes;
constexpr std::uint32_t kOwnRows = kTile / 2 * kRowBytes;  // of a warpgroup, in a box

/// Shared memory from an aligned address on; two stages of each operand.
template <int head_dim>
struct Layout {
  static constexpr std::uint32_t kTileBytes = head_dim / kBoxColumns * kBox;
  static constexpr std::uint32_t kQueryAt = 0;
  static constexpr std::uint32_t kKeyAt = kQueryAt + 2 * kTileBytes;
  static constexpr std::uint32_t kValueAt = kKeyAt + 2 * kTileBytes;
  static constexpr int kBytes = kValueAt + 2 * kTileBytes + kAlignment;
};

enum class Operand : std::uint32_t { query, key, value };
constexpr int kBarriers = 12;

/// A stage is full when its bytes have arrived, and empty when it has been read.
struct Barriers {
  std::uint32_t first = 0;

  [[nodiscard]] __device__ std::uint32_t full(Operand what, std::uint32_t stage) const {
    return first + static_cast<std::uint32_t>(what) * 32 + stage * 8;
  }
  [[nodiscard]] __device__ std::uint32_t empty(Operand what, std::uint32_t stage) const {
    return full(what, stage) + 16;
  }
};

/// The last tile of a head's queries has the most keys.
__device__ AttentionTile last_first(const TileOrder& tiles, int at) {
  AttentionTile tile = tiles[at];
  tile.index = tiles.length() - 1 - tile.index;
  return tile;
}

/// One thread takes tiles and loads them by TMA; tile -1 marks the end.
template <int head_dim>
__device__ void load(const AttentionDims& dims, const AttentionForwardMaps& maps, int* begun,
                     std::uint32_t memory, const Barriers& barriers,
                     volatile int (&tile_index)[2]) {
  using At = Layout<head_dim>;
  const TileOrder tiles = tiles_of(dims, kTile);
  TwoStages query;
  TwoStages keys;
  const auto free = [&](Operand what, const TwoStages& at) {
    wait(barriers.empty(what, at.stage), at.parity ^ 1U);
  };
  const auto take = [&](Operand what, const TwoStages& at, const CUtensorMap& map, int head,
                        int token, std::uint32_t to) {
    arrive_expecting(barriers.full(what, at.stage), At::kTileBytes);
    load_head<head_dim>(map, head, token, memory + to + at.stage * At::kTileBytes, kBox,
                        barriers.full(what, at.stage));
  };
  for (;; query.next()) {
    const int index = take_tile(begun);
    free(Operand::query, query);
    tile_index[query.stage] = index < tiles.size() ? index : -1;
    if (index >= tiles.size()) return arrive(barriers.full(Operand::query, query.stage));
    const AttentionTile tile = last_first(tiles, index);
    const int first = tile.batch * dims.seq;
    const int kv_head = tile.head / dims.group();
    take(Operand::query, query, maps.query, tile.head, first + tile.index * kTile, At::kQueryAt);
    for (int i = tile.index; i >= 0; --i, keys.next()) {
      free(Operand::key, keys);
      take(Operand::key, keys, maps.key, kv_head, first + i * kTile, At::kKeyAt);
      free(Operand::value, keys);
      take(Operand::value, keys, maps.value, kv_head, first + i * kTile, At::kValueAt);
    }
  }
}

/// For a thread's two rows: the largest logit, to which exponentials are relative, and the sum of
/// this thread's exponentials.
struct Rows {
  float largest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
};

/// Replaces logits by exponentials. `shrunk`: factor for the sums so far.
__device__ void soften(float (&scores)[64], float scale, Rows& rows, float (&shrunk)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float largest = rows.largest[r];
#pragma unroll
    for (int j = 0; j < 16; ++j)
      largest = fmaxf(largest, fmaxf(scores[4 * j + 2 * r], scores[4 * j + 2 * r + 1]));
    largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, 2));
    shrunk[r] = exp2_of((rows.largest[r] - largest) * scale);
    rows.largest[r] = largest;
    const float shift = largest * scale;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < 16; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[4 * j + 2 * r + e];
        score = exp2_of(score * scale - shift);
        sum += score;
      }
    rows.sum[r] = rows.sum[r] * shrunk[r] + sum;
  }
}

/// Masks keys after the query in a tile on the diagonal.
__device__ void mask(float (&scores)[64], int row, int col) {
#pragma unroll
  for (int j = 0; j < 16; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (8 * j + col + e % 2 > row + e / 2 * 8) scores[4 * j + e] = -INFINITY;
}

/// Waits for this warpgroup's turn to multiply; the other's begins when these GEMMs are queued.
__device__ void wait_for_turn(int warpgroup) {
  if (warpgroup == 0)
    meet<kTurn, 2 * kWarpgroupThreads>();
  else
    meet<kTurn + 1, 2 * kWarpgroupThreads>();
}
__device__ void end_turn(int warpgroup) {
  if (warpgroup == 0)
    pass_on<kTurn + 1, 2 * kWarpgroupThreads>();
  else
    pass_on<kTurn, 2 * kWarpgroupThreads>();
}

/// Writes O / sums to the shared memory of the warpgroup's queries, and from there to memory.
template <int n>
__device__ void store_output(const float (&output)[n], const Rows& rows, const AttentionTile& tile,
                             int first_token, const CUtensorMap& map, std::uint32_t queries,
                             int warpgroup) {
  const float share[2] = {1 / rows.sum[0], 1 / rows.sum[1]};
#pragma unroll
  for (int step = 0; step < n / 8; ++step) {
    std::uint32_t values[4];
#pragma unroll
    for (int i = 0; i < 4; ++i)
      values[i] = pack(output[8 * step + 2 * i] * share[i % 2],
                       output[8 * step + 2 * i + 1] * share[i % 2]);
    store_step(queries + static_cast<std::uint32_t>(step) / 4 * kBox, step % 4, values);
  }
  publish_stores();
  meet_own(warpgroup);
  if (threadIdx.x % kWarpgroupThreads != 0) return;
#pragma unroll
  for (int i = 0; i < n / 32; ++i)
    store_box(map, i * kBoxColumns, tile.head, first_token,
              queries + static_cast<std::uint32_t>(i) * kBox);
  commit_stores();
  wait_until_read();
}

template <int head_dim>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention(const AttentionDims dims, const __grid_constant__ AttentionForwardMaps maps,
              float* log_sum_exp, int* begun) {
  using At = Layout<head_dim>;
  extern __shared__ std::byte shared[];
  __shared__ std::uint64_t barrier_memory[kBarriers];
  __shared__ int tile_index[2];  // by stages of queries
  const std::uint32_t memory = aligned_address_of(shared);
  const Barriers barriers{.first = address_of(barrier_memory)};
  if (threadIdx.x == 0) {
    for (std::uint32_t stage = 0; stage < 2; ++stage)
      for (const Operand what : {Operand::query, Operand::key, Operand::value}) {
        init_barrier(barriers.full(what, stage), 1);
        init_barrier(barriers.empty(what, stage), what == Operand::query ? 2 : kAttentionWarps);
      }
    publish_barriers();
  }
  __syncthreads();
  const int warpgroup = own_warpgroup() - 1;
  if (warpgroup < 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0) load<head_dim>(dims, maps, begun, memory, barriers, tile_index);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  const int lane = thread % kWarp;
  const int row = warpgroup * 64 + thread / kWarp * 16 + lane / 4;
  const float scale = dims.scale * kLog2E;
  const TileOrder tiles = tiles_of(dims, kTile);
  if (warpgroup == 1) end_turn(warpgroup);  // the other begins
  TwoStages query;
  TwoStages key;
  TwoStages value;
  const auto free = [&](Operand what, TwoStages& at) {
    if (lane == 0) arrive(barriers.empty(what, at.stage));
    at.next();
  };
  float output[head_dim / 2];
  float scores[64];
  std::uint32_t narrowed[8][4];
  for (;; query.next()) {
    wait(barriers.full(Operand::query, query.stage), query.parity);
    const int index = seen(tile_index[query.stage]);
    if (index < 0) break;
    const AttentionTile tile = last_first(tiles, index);
    const std::uint32_t queries = memory + At::kQueryAt + query.stage * At::kTileBytes +
                                  static_cast<std::uint32_t>(warpgroup) * kOwnRows;
    Rows rows;
    float shrunk[2];
#pragma unroll
    for (float& sum : output) sum = 0;
    wait(barriers.full(Operand::key, key.stage), key.parity);
    wait_for_turn(warpgroup);
    begin_products();
    multiply_heads<head_dim>(scores, queries, kBox,
                             memory + At::kKeyAt + key.stage * At::kTileBytes, kBox);
    end_turn(warpgroup);
    wait_for_products<0>();
    pin(scores);
    free(Operand::key, key);
    mask(scores, row, lane % 4 * 2);
    soften(scores, scale, rows, shrunk);
    narrow(scores, narrowed);
    for (int left = tile.index; left > 0; --left) {
      wait(barriers.full(Operand::key, key.stage), key.parity);
      wait_for_turn(warpgroup);
      begin_products();
      multiply_heads<head_dim>(scores, queries, kBox,
                               memory + At::kKeyAt + key.stage * At::kTileBytes, kBox);
      wait(barriers.full(Operand::value, value.stage), value.parity);
      multiply_rows<kTile>(output, narrowed, memory + At::kValueAt + value.stage * At::kTileBytes);
      end_turn(warpgroup);
      wait_for_products<1>();
      pin(scores);
      free(Operand::key, key);
      soften(scores, scale, rows, shrunk);
      wait_for_products<0>();
      pin(output);
      free(Operand::value, value);
#pragma unroll
      for (int i = 0; i < head_dim / 2; ++i) output[i] *= shrunk[i / 2 % 2];
      narrow(scores, narrowed);
    }
    wait(barriers.full(Operand::value, value.stage), value.parity);
    begin_products();
    multiply_rows<kTile>(output, narrowed, memory + At::kValueAt + value.stage * At::kTileBytes);
    const int first_token = tile.batch * dims.seq + tile.index * kTile;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      rows.sum[r] += __shfl_xor_sync(~0U, rows.sum[r], 1);
      rows.sum[r] += __shfl_xor_sync(~0U, rows.sum[r], 2);
      if (lane % 4 == 0)
        log_sum_exp[static_cast<std::int64_t>(first_token + row + 8 * r) * dims.heads + tile.head] =
            rows.largest[r] * dims.scale + logf(rows.sum[r]);
    }
    wait_for_products<0>();
    pin(output);
    free(Operand::value, value);
    store_output(output, rows, tile, first_token + warpgroup * 64, maps.output, queries, warpgroup);
    if (thread == 0) arrive(barriers.empty(Operand::query, query.stage));
  }
  if (warpgroup == 0) wait_for_turn(warpgroup);  // the last end_turn() of the other
  if (thread == 0) wait_until_stored();
}

template <int head_dim>
Result<void> forward(const kernels::AttentionForward<Bf16>& k, const AttentionForwardMaps& maps,
                     cudaStream_t stream) {
  constexpr int kBytes = Layout<head_dim>::kBytes;
  MFSDP_LET(grid, staying_grid(attention<head_dim>, kAttentionThreads, kBytes));
  int* const begun = reinterpret_cast<int*>(k.workspace.data());
  MFSDP_TRY(check(cudaMemsetAsync(begun, 0, sizeof(int), stream), "cudaMemsetAsync"));
  attention<head_dim><<<grid, kAttentionThreads, kBytes, stream>>>(AttentionDims(k.shape), maps,
                                                                   k.log_sum_exp, begun);
  return launched("attention forward");
}

}  // namespace

Result<void> warpgroup_attention_forward(const kernels::AttentionForward<Bf16>& k,
                                         const AttentionForwardMaps& maps, cudaStream_t stream) {
  return k.shape.head_dim == 64 ? forward<64>(k, maps, stream) : forward<128>(k, maps, stream);
}

}  // namespace mfsdp::cuda
