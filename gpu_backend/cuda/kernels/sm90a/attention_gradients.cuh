// The backward of attention by warpgroups, heads of 64, 96 and 128: a block processes tiles of 128
// keys and one query head, or all query heads of a group.
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
#pragma once

#include "gpu_backend/cuda/kernels/sm90a/attention_backward.cuh"

namespace mfsdp::cuda::attention_backward {

inline constexpr int kKeys = kWarpgroupTile;
inline constexpr std::uint32_t kKeyBox = kKeys * kRowBytes;

/// Shared memory from an aligned address on; two stages of everything except keys and values.
template <int head_dim>
struct Layout {
  static constexpr std::uint32_t kKeyTile = kBoxes<head_dim> * kKeyBox;
  static constexpr std::uint32_t kQueryTile = kBoxes<head_dim> * kQueryBox;
  static constexpr std::uint32_t kKeyAt = 0;
  static constexpr std::uint32_t kValueAt = kKeyAt + kKeyTile;
  static constexpr std::uint32_t kQueryAt = kValueAt + kKeyTile;
  static constexpr std::uint32_t kOutputAt = kQueryAt + 2 * kQueryTile;
  static constexpr std::uint32_t kScoresAt = kOutputAt + 2 * kQueryTile;  // dS^T of 128 keys
  static constexpr std::uint32_t kStatisticsAt = kScoresAt + 2 * kKeyBox;
  static constexpr int kBytes = kStatisticsAt + 2 * kStatistics + kAlignment;
};

/// Columns of dQ that a warpgroup computes, in one box of keys: half of them, and of 96 the first
/// has 64.
template <int head_dim>
inline constexpr int kOwnColumns = head_dim == 64 ? 32 : 64;

/// dQ = dS K, `columns` of it; closes the group.
template <int columns>
__device__ void multiply_scores(float (&q)[columns / 2], std::uint32_t scores, std::uint32_t keys) {
#pragma unroll
  for (std::uint32_t i = 0; i < kKeys / 16; ++i)
    multiply_across(q, matrix_of(scores + i * 16 * kRowBytes), matrix_of(keys + i * 16 * kRowBytes),
                    i > 0);
  commit_products();
}

template <int head_dim, Sight sight, Cap cap>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    gradients(const AttentionDims dims, const __grid_constant__ AttentionBackwardMaps maps,
              const Sums to, const kernels::HeadView<Bf16> d_query,
              const kernels::HeadView<Bf16> d_key, const kernels::HeadView<Bf16> d_value) {
  using At = Layout<head_dim>;
  extern __shared__ std::byte shared[];
  __shared__ std::uint64_t barrier_memory[BackwardBarriers::kCount];
  __shared__ BackwardWork work;
  const std::uint32_t memory = aligned_address_of(shared);
  const BackwardBarriers barriers{.first = address_of(barrier_memory)};
  if (threadIdx.x == 0) barriers.init();
  __syncthreads();
  const int warpgroup = own_warpgroup() - 1;
  if (warpgroup < 0) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
    if (threadIdx.x == 0)
      load<head_dim, sight, At>(dims, maps, d_query, to.begun, memory, barriers, work);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  constexpr int kColumns = kOwnColumns<head_dim>;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) % kWarpgroupThreads / kWarp;
  const int own_row = warpgroup * 64 + warp * 16 + lane / 4;
  const auto own = static_cast<std::uint32_t>(warpgroup);
  const std::uint32_t own_rows = own * 64 * kRowBytes;
  const std::uint32_t own_columns = own * (head_dim == 64 ? kRowBytes / 2 : kKeyBox);
  const float scale = dims.score_factor<cap>() * kLog2E;
  const TileOrder tiles = tiles_of(dims, dims.keys_of<sight>(), kKeys);
  constexpr int kDiagonal = kKeys / kQueries;  // blocks of queries on the diagonal

  TwoStages at;
  for (std::uint32_t parity = 0;; parity ^= 1U) {
    wait(barriers.keys(), parity);
    const int index = seen(work.tile);
    if (index < 0) return;
    AttentionTile tile;
    float sums_k[head_dim / 2];
    float sums_v[head_dim / 2];
#pragma unroll
    for (int i = 0; i < head_dim / 2; ++i) sums_k[i] = sums_v[i] = 0;
    const int heads = sight == Sight::whole ? 1 : dims.tile_heads;
    for (int of_tile = 0; of_tile < heads; ++of_tile) {
      tile = tiles[seen(work.tile)];  // again and again, so that it occupies no register
      const int first_block =
          sight == Sight::part ? seen(work.first_block) : tile.index * kDiagonal;
      float* sums_q = to.query +
                      dims.block_at(dims.queries_of<sight>(), dims.heads, tile.batch,
                                    tile.head * heads + of_tile, first_block) *
                          kSums<head_dim> +
                      warpgroup * (64 * kColumns);
      int left = seen(work.blocks);
      int first_ahead = own_row - lane % 4 * 2;
      if constexpr (sight == Sight::part) first_ahead += seen(work.ahead);
      for (int ahead = first_ahead; left > 0; --left, ahead -= kQueries) {
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
        cap_scores<cap>(p, dims);
        if (ahead > -kQueries) mask_later<cap>(p, ahead);
        if constexpr (sight == Sight::bounded)
          if (left <= seen(work.masked)) {
            const AttentionTile again = tiles[seen(work.tile)];  // occupies no register elsewhere
            mask_earlier<cap>(p, dims, again.batch, again.index * kKeys + own_row - ahead, ahead);
          }
        if constexpr (sight == Sight::part)
          if (left <= seen(work.masked)) {
            const int block = seen(work.first_block) + seen(work.blocks) - left;
            const int place = dims.query_place(block * kQueries) + lane % 4 * 2;
            mask_earlier<cap>(p, dims, tiles[seen(work.tile)].batch, place,
                              seen(work.place) + own_row - place);
          }
        std::uint32_t narrowed[4][4];
        probabilities<cap>(p, scale, numbers, narrowed);
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
        const auto add_queries = [&]<int columns>() {
          float q[columns / 2];  // dQ
          begin_products();
          multiply_scores<columns>(q, scores, memory + At::kKeyAt + own_columns);
          wait_for_products<1>();
          if (lane == 0) arrive(barriers.output_empty(at.stage));
          multiply_rows<kQueries>(sums_k, d_scores, query);
          wait_for_products<1>();
          pin(q);
          add_to(sums_q, q);
        };
        if (head_dim == 96 && warpgroup == 1)
          add_queries.template operator()<32>();
        else
          add_queries.template operator()<kColumns>();
        sums_q += kSums<head_dim>;
        wait_for_products<0>();
        if (lane == 0) arrive(barriers.query_empty(at.stage));
        at.next();
      }
    }
    pin(sums_k);
    pin(sums_v);
    tile = tiles[seen(work.tile)];
    if (lane == 0) arrive(barriers.keys_empty());
    const int kv_head = tile.head * heads / dims.group();
    if (shares_sums(dims)) {
      const std::int64_t sums = dims.block_at(dims.queries_of<sight>(), dims.kv_heads, tile.batch,
                                              kv_head, tile.index * kDiagonal + warpgroup) *
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

template <int head_dim, Sight sight, Cap cap = Cap::none>
Result<void> backward(const kernels::AttentionBackward<Bf16>& k, const AttentionBackwardMaps& maps,
                      cudaStream_t stream) {
  constexpr bool kTakesHeads = sight == Sight::bounded;
  return run_backward<head_dim, kTakesHeads>(gradients<head_dim, sight, cap>,
                                             Layout<head_dim>::kBytes, k, maps, stream);
}

}  // namespace mfsdp::cuda::attention_backward
