// Attention by warpgroups: a block processes tiles of 128 queries of a head. Each of two warpgroups
// has 64 of the queries; a third one loads queries, and keys and values in tiles of 128 (64 of heads
// of 256), by TMA. Tiles of keys that no query of a block sees are not loaded; a warpgroup passes
// over those that none of its own queries sees. Queries of a part of a sequence may see no key.
// The warpgroups alternate: while one multiplies, the other computes probabilities from logits.
//
//   tensor cores        meanwhile
//   S = Q K^T           the scores before: as bf16
//   O += P V            S: the largest by rows, exponentials and their sums
//                       O times what the largest became smaller by
#pragma once

#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/grouped_tiles.cuh"
#include "gpu_backend/cuda/kernels/sm90a/attention.cuh"

namespace mfsdp::cuda::attention_forward {

inline constexpr int kTile = kWarpgroupTile;
inline constexpr std::uint32_t kBox = kTile * kRowBytes;
inline constexpr int kOwnQueries = kTile / 2;  // of a warpgroup
inline constexpr std::uint32_t kOwnRows = kOwnQueries * kRowBytes;

/// Shared memory from an aligned address on; two stages of each operand, except queries of 256.
template <int head_dim>
struct Layout {
  static constexpr int kKeys = attention_keys(head_dim);
  static constexpr int kQueryStages = head_dim == 256 ? 1 : 2;
  static constexpr std::uint32_t kKeyBox = kKeys * kRowBytes;
  static constexpr std::uint32_t kQueryBytes = kBoxes<head_dim> * kBox;
  static constexpr std::uint32_t kKeyBytes = kBoxes<head_dim> * kKeyBox;
  static constexpr std::uint32_t kQueryAt = 0;
  static constexpr std::uint32_t kKeyAt = kQueryAt + kQueryStages * kQueryBytes;
  static constexpr std::uint32_t kValueAt = kKeyAt + 2 * kKeyBytes;
  static constexpr int kBytes = kValueAt + 2 * kKeyBytes + kAlignment;
};

/// A tile of queries for the multiplying warpgroups: its number, -1 after the last one, and the
/// first tile of keys that any of its queries sees.
struct Work {
  int tile;
  int first_keys;
};

enum class Operand : std::uint32_t { query, key, value };
inline constexpr int kBarriers = 12;

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
__device__ inline AttentionTile last_first(const TileOrder& tiles, int at) {
  AttentionTile tile = tiles[at];
  tile.index = tiles.length() - 1 - tile.index;
  return tile;
}

/// One thread takes tiles and loads them by TMA.
template <int head_dim, Sight sight>
__device__ void load(const AttentionDims& dims, const AttentionForwardMaps& maps, int* begun,
                     std::uint32_t memory, const Barriers& barriers, volatile Work* work) {
  using At = Layout<head_dim>;
  const TileOrder tiles = tiles_of(dims, dims.queries_of<sight>(), kTile);
  Stages<At::kQueryStages> query;
  TwoStages keys;
  const auto free = [&](Operand what, const auto& at) {
    wait(barriers.empty(what, at.stage), at.parity ^ 1U);
  };
  const auto take = [&](Operand what, const auto& at, const CUtensorMap& map, int head, int token,
                        std::uint32_t to, std::uint32_t box) {
    const std::uint32_t bytes = kBoxes<head_dim> * box;
    arrive_expecting(barriers.full(what, at.stage), bytes);
    load_head<head_dim>(map, head, token, memory + to + at.stage * bytes, box,
                        barriers.full(what, at.stage));
  };
  for (;; query.next()) {
    const int index = take_tile(begun);
    free(Operand::query, query);
    work[query.stage].tile = index < tiles.size() ? index : -1;
    if (index >= tiles.size()) return arrive(barriers.full(Operand::query, query.stage));
    const AttentionTile tile = last_first(tiles, index);
    const int first = tile.batch * dims.keys_of<sight>();
    const int kv_head = tile.head / dims.group();
    int first_keys = 0;
    int end_keys = (tile.index + 1) * (kTile / At::kKeys);
    if constexpr (sight == Sight::bounded)
      first_keys = dims.first_seen(tile.batch, tile.index * kTile) / At::kKeys;
    if constexpr (sight == Sight::part) {
      const int place = dims.query_place(tile.index * kTile);
      first_keys = dims.keys_before(dims.first_seen(tile.batch, place)) / At::kKeys;
      end_keys = dims.keys_before(place + kTile) / At::kKeys;
    }
    work[query.stage].first_keys = first_keys;
    take(Operand::query, query, maps.query, tile.head,
         tile.batch * dims.queries_of<sight>() + tile.index * kTile, At::kQueryAt, kBox);
    for (int i = end_keys - 1; i >= first_keys; --i, keys.next()) {
      int token = first + i * At::kKeys;
      if constexpr (sight == Sight::part) token = first + dims.key_row(i * At::kKeys);
      free(Operand::key, keys);
      take(Operand::key, keys, maps.key, kv_head, token, At::kKeyAt, At::kKeyBox);
      free(Operand::value, keys);
      take(Operand::value, keys, maps.value, kv_head, token, At::kValueAt, At::kKeyBox);
    }
  }
}

/// For a thread's two rows: the largest logit, to which exponentials are relative, and the sum of
/// this thread's exponentials.
struct Rows {
  float largest[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0, 0};
};

/// Replaces logits by exponentials. `shrunk`: factor for the sums so far. `sees_none`: all logits of
/// a row may be masked.
template <bool sees_none, int n>
__device__ void soften(float (&scores)[n], float scale, Rows& rows, float (&shrunk)[2]) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    float largest = rows.largest[r];
#pragma unroll
    for (int j = 0; j < n / 4; ++j)
      largest = fmaxf(largest, fmaxf(scores[4 * j + 2 * r], scores[4 * j + 2 * r + 1]));
    largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, 1));
    largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, 2));
    const float before = rows.largest[r];
    rows.largest[r] = largest;
    if constexpr (sees_none) largest = largest == -INFINITY ? 0 : largest;
    shrunk[r] = exp2_of((before - largest) * scale);
    const float shift = largest * scale;
    float sum = 0;
#pragma unroll
    for (int j = 0; j < n / 4; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& score = scores[4 * j + 2 * r + e];
        score = exp2_of(score * scale - shift);
        sum += score;
      }
    rows.sum[r] = rows.sum[r] * shrunk[r] + sum;
  }
}

/// Masks keys after the query in a tile on the diagonal. `row`: of this thread's first query, less
/// the column of its first key.
template <int n>
__device__ void mask_later(float (&scores)[n], int row) {
#pragma unroll
  for (int j = 0; j < n / 4; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (8 * j + e % 2 > row + e / 2 * 8) scores[4 * j + e] = -INFINITY;
}
/// Masks keys before the first that a query sees; `first`: of this thread's two, relative to the
/// column of its first key.
template <int n>
__device__ void mask_earlier(float (&scores)[n], int first, int first_of_second) {
#pragma unroll
  for (int j = 0; j < n / 4; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e)
      if (8 * j + e % 2 < (e < 2 ? first : first_of_second)) scores[4 * j + e] = -INFINITY;
}

/// Waits for this warpgroup's turn to multiply; the other's begins when these GEMMs are queued.
__device__ inline void wait_for_turn(int warpgroup) {
  if (warpgroup == 0)
    meet<kTurn, 2 * kWarpgroupThreads>();
  else
    meet<kTurn + 1, 2 * kWarpgroupThreads>();
}
__device__ inline void end_turn(int warpgroup) {
  if (warpgroup == 0)
    pass_on<kTurn + 1, 2 * kWarpgroupThreads>();
  else
    pass_on<kTurn, 2 * kWarpgroupThreads>();
}

/// Writes O / sums to the shared memory of the warpgroup's queries, and from there to memory.
template <bool sees_none, int n>
__device__ void store_output(const float (&output)[n], const Rows& rows, const AttentionTile& tile,
                             int first_token, const CUtensorMap& map, std::uint32_t queries,
                             int warpgroup) {
  float share[2] = {1 / rows.sum[0], 1 / rows.sum[1]};
  if constexpr (sees_none)
#pragma unroll
    for (int r = 0; r < 2; ++r)
      if (rows.sum[r] == 0) share[r] = 0;
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
  for (int i = 0; i < (n + 31) / 32; ++i)
    store_box(map, i * kBoxColumns, tile.head, first_token,
              queries + static_cast<std::uint32_t>(i) * kBox);
  commit_stores();
  wait_until_read();
}

template <int head_dim, Sight sight, Cap cap>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    attention(const AttentionDims dims, const __grid_constant__ AttentionForwardMaps maps,
              float* log_sum_exp, int* begun) {
  using At = Layout<head_dim>;
  extern __shared__ std::byte shared[];
  __shared__ std::uint64_t barrier_memory[kBarriers];
  __shared__ Work work[At::kQueryStages];
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
    if (threadIdx.x == 0) load<head_dim, sight>(dims, maps, begun, memory, barriers, work);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int thread = static_cast<int>(threadIdx.x) % kWarpgroupThreads;
  const int lane = thread % kWarp;
  const int row = warpgroup * kOwnQueries + thread / kWarp * 16 + lane / 4;
  const int col = lane % 4 * 2;
  const float factor = dims.score_factor<cap>();
  const float scale = factor * kLog2E;
  const TileOrder tiles = tiles_of(dims, dims.queries_of<sight>(), kTile);
  constexpr bool kSeesNone = sight == Sight::part;
  if (warpgroup == 1) end_turn(warpgroup);  // the other begins
  Stages<At::kQueryStages> query;
  TwoStages key;
  TwoStages value;
  const auto free = [&](Operand what, TwoStages& at) {
    if (lane == 0) arrive(barriers.empty(what, at.stage));
    at.next();
  };
  const auto keys = [&] { return memory + At::kKeyAt + key.stage * At::kKeyBytes; };
  const auto values = [&] { return memory + At::kValueAt + value.stage * At::kKeyBytes; };
  const auto pass_over = [&] {
    wait_for_turn(warpgroup);
    end_turn(warpgroup);
    wait(barriers.full(Operand::key, key.stage), key.parity);
    free(Operand::key, key);
    wait(barriers.full(Operand::value, value.stage), value.parity);
    free(Operand::value, value);
  };
  float output[head_dim / 2];
  float scores[At::kKeys / 2];
  std::uint32_t narrowed[At::kKeys / 16][4];
  for (;; query.next()) {
    wait(barriers.full(Operand::query, query.stage), query.parity);
    const int index = seen(work[query.stage].tile);
    if (index < 0) break;
    const AttentionTile tile = last_first(tiles, index);
    const std::uint32_t queries = memory + At::kQueryAt + query.stage * At::kQueryBytes +
                                  static_cast<std::uint32_t>(warpgroup) * kOwnRows;
    // Tiles of keys from the last one that this warpgroup's queries see to the first one.
    const int own_query = tile.index * kTile + warpgroup * kOwnQueries;
    int first_query = tile.index * kTile;  // of the tile, as a key's number
    bool has_diagonal = true;
    int at = (own_query + kOwnQueries - 1) / At::kKeys;
    int first_keys = 0;
    int own_first_keys = 0;
    int first_seen[2] = {0, 0};
    int unmasked_from = 0;  // this tile of keys and later ones have keys that all queries see
    if constexpr (sight == Sight::bounded) {
      first_keys = seen(work[query.stage].first_keys);
      own_first_keys = dims.first_seen(tile.batch, own_query) / At::kKeys;
      for (int r = 0; r < 2; ++r)
        first_seen[r] = dims.first_seen(tile.batch, tile.index * kTile + row + 8 * r) - col;
      unmasked_from =
          (dims.first_seen(tile.batch, own_query + kOwnQueries - 1) + At::kKeys - 1) / At::kKeys;
    }
    if constexpr (sight == Sight::part) {
      const int place = dims.query_place(tile.index * kTile);
      const int own_place = place + warpgroup * kOwnQueries;
      const auto first_of = [&](int query) {
        return dims.keys_before(dims.first_seen(tile.batch, query));
      };
      has_diagonal = dims.has_own_keys();
      first_query = dims.keys_before(place);
      at = (dims.keys_before(own_place + kOwnQueries) + At::kKeys - 1) / At::kKeys - 1;
      first_keys = seen(work[query.stage].first_keys);
      own_first_keys = first_of(own_place) / At::kKeys;
      for (int r = 0; r < 2; ++r) first_seen[r] = first_of(place + row + 8 * r) - col;
      unmasked_from = (first_of(own_place + kOwnQueries - 1) + At::kKeys - 1) / At::kKeys;
    }
    const auto finish_scores = [&](bool on_diagonal) {
      if constexpr (cap == Cap::capped) {
        const float slope = cap_slope(dims);
#pragma unroll
        for (float& score : scores) score = share_of_cap(score, slope);
      }
      if (on_diagonal) mask_later(scores, first_query + row - at * At::kKeys - col);
      if (sight != Sight::whole && at < unmasked_from)
        mask_earlier(scores, first_seen[0] - at * At::kKeys, first_seen[1] - at * At::kKeys);
    };
    Rows rows;
    float shrunk[2];
#pragma unroll
    for (float& sum : output) sum = 0;
    const int first_token = tile.batch * dims.queries_of<sight>() + tile.index * kTile;
    const auto store_log_sum_exp = [&] {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        rows.sum[r] += __shfl_xor_sync(~0U, rows.sum[r], 1);
        rows.sum[r] += __shfl_xor_sync(~0U, rows.sum[r], 2);
        if (lane % 4 == 0)
          log_sum_exp[static_cast<std::int64_t>(first_token + row + 8 * r) * dims.heads +
                      tile.head] = rows.largest[r] * factor + logf(rows.sum[r]);
      }
    };
    if (sight != Sight::part || at >= first_keys) {
      if (At::kKeys < kTile && warpgroup == 0 && has_diagonal) pass_over();
      wait(barriers.full(Operand::key, key.stage), key.parity);
      wait_for_turn(warpgroup);
      begin_products();
      multiply_heads<head_dim>(scores, queries, kBox, keys(), At::kKeyBox);
      end_turn(warpgroup);
      wait_for_products<0>();
      pin(scores);
      free(Operand::key, key);
      finish_scores(has_diagonal);
      soften<kSeesNone>(scores, scale, rows, shrunk);
      narrow(scores, narrowed);
      for (--at; at >= own_first_keys; --at) {
        wait(barriers.full(Operand::key, key.stage), key.parity);
        wait_for_turn(warpgroup);
        begin_products();
        multiply_heads<head_dim>(scores, queries, kBox, keys(), At::kKeyBox);
        wait(barriers.full(Operand::value, value.stage), value.parity);
        multiply_rows<At::kKeys>(output, narrowed, values());
        end_turn(warpgroup);
        wait_for_products<1>();
        pin(scores);
        free(Operand::key, key);
        finish_scores(false);
        soften<kSeesNone>(scores, scale, rows, shrunk);
        wait_for_products<0>();
        pin(output);
        free(Operand::value, value);
#pragma unroll
        for (int i = 0; i < head_dim / 2; ++i) output[i] *= shrunk[i / 2 % 2];
        narrow(scores, narrowed);
      }
      wait(barriers.full(Operand::value, value.stage), value.parity);
      begin_products();
      multiply_rows<At::kKeys>(output, narrowed, values());
      store_log_sum_exp();
      wait_for_products<0>();
      pin(output);
      free(Operand::value, value);
    } else {
      store_log_sum_exp();  // no query of the tile sees a key
    }
    if constexpr (sight != Sight::whole)
      for (; at >= first_keys; --at) pass_over();
    store_output<kSeesNone>(output, rows, tile, first_token + warpgroup * kOwnQueries, maps.output,
                            queries, warpgroup);
    if (thread == 0) arrive(barriers.empty(Operand::query, query.stage));
  }
  if (warpgroup == 0) wait_for_turn(warpgroup);  // the last end_turn() of the other
  if (thread == 0) wait_until_stored();
}

template <int head_dim, Sight sight, Cap cap = Cap::none>
Result<void> forward(const kernels::AttentionForward<Bf16>& k, const AttentionForwardMaps& maps,
                     cudaStream_t stream) {
  constexpr int kBytes = Layout<head_dim>::kBytes;
  constexpr auto kKernel = attention<head_dim, sight, cap>;
  MFSDP_LET(grid, staying_grid(kKernel, kAttentionThreads, kBytes));
  int* const begun = reinterpret_cast<int*>(k.workspace.data());
  MFSDP_TRY(check(cudaMemsetAsync(begun, 0, sizeof(int), stream), "cudaMemsetAsync"));
  kKernel<<<grid, kAttentionThreads, kBytes, stream>>>(AttentionDims(k.shape), maps, k.log_sum_exp,
                                                       begun);
  return launched("attention forward");
}

}  // namespace mfsdp::cuda::attention_forward
