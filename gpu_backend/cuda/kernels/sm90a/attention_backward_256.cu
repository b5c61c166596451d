// The backward of attention by warpgroups, heads of 256: a block processes tiles of 64 keys and one
// query head. Sums of dK and dV of 64 keys fill the registers of two warpgroups, so each warpgroup
// keeps 128 columns of both. For a block of 64 queries each computes the scores of 32 of them, and
// the other reads those from shared memory:
//
//   tensor cores                  meanwhile
//   S^T = K Q^T, 32 queries       the block before: the second half of dQ is added
//   dP^T = V dO^T, 32 queries     P^T = exp(S^T - L), masked, as bf16 to shared memory
//                                 both warpgroups synchronise
//   dV += P^T dO, 128 columns     dS^T = P^T * (dP^T - D) as bf16 to shared memory
//                                 both warpgroups synchronise
//   dQ = dS K, 128 columns
//   dK += dS^T Q, 128 columns     the first half of dQ is added to its sums in memory
//
// Adding takes as long as a GEMM: halves of it beside different GEMMs cost least.
#include "gpu_backend/cuda/kernels/sm90a/attention_backward.cuh"

namespace mfsdp::cuda {
namespace {

constexpr int kHeadDim = 256;
constexpr int kKeys = attention_keys(kHeadDim);
constexpr std::uint32_t kKeyBox = kKeys * kRowBytes;
constexpr int kOwnQueries = kQueries / 2;      // whose scores a warpgroup computes
constexpr int kOwnColumns = kHeadDim / 2;      // of dQ, dK and dV
constexpr int kOwnSums = kKeys * kOwnColumns;  // of a block of 64 rows

/// Shared memory from an aligned address on; two stages of everything except keys and values.
struct Layout {
  static constexpr std::uint32_t kKeyTile = kBoxes<kHeadDim> * kKeyBox;
  static constexpr std::uint32_t kQueryTile = kBoxes<kHeadDim> * kQueryBox;
  static constexpr std::uint32_t kKeyAt = 0;
  static constexpr std::uint32_t kValueAt = kKeyAt + kKeyTile;
  static constexpr std::uint32_t kQueryAt = kValueAt + kKeyTile;
  static constexpr std::uint32_t kOutputAt = kQueryAt + 2 * kQueryTile;
  static constexpr std::uint32_t kScoresAt = kOutputAt + 2 * kQueryTile;  // P^T, then dS^T
  static constexpr std::uint32_t kStatisticsAt = kScoresAt + 4 * kKeyBox;
  static constexpr int kBytes = kStatisticsAt + 2 * kStatistics + kAlignment;
};

/// d += a b over 64 rows of b, 128 columns; a has rows of 64. Closes the group.
__device__ void multiply_tiles(float (&d)[kOwnColumns / 2], std::uint32_t a, std::uint32_t b) {
#pragma unroll
  for (std::uint32_t i = 0; i < kQueries / 16; ++i)
    multiply_shared<false, true>(d, matrix_of(a + i * 32), matrix_of(b + i * 16 * kRowBytes), true);
  commit_products();
}

/// 64 columns of dQ = dS K; closes the group.
__device__ void multiply_keys(float (&q)[kOwnColumns / 4], std::uint32_t scores,
                              std::uint32_t keys) {
#pragma unroll
  for (std::uint32_t i = 0; i < kKeys / 16; ++i)
    multiply_across(q, matrix_of(scores + i * 16 * kRowBytes), matrix_of(keys + i * 16 * kRowBytes),
                    i > 0);
  commit_products();
}

template <Sight sight, Cap cap>
__global__ void __launch_bounds__(kAttentionThreads, 1)
    gradients_256(const AttentionDims dims, const __grid_constant__ AttentionBackwardMaps maps,
                  const Sums to, const kernels::HeadView<Bf16> d_query,
                  const kernels::HeadView<Bf16> d_key, const kernels::HeadView<Bf16> d_value) {
  using At = Layout;
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
      load<kHeadDim, sight, At>(dims, maps, d_query, to.begun, memory, barriers, work);
    return;
  }
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warp = static_cast<int>(threadIdx.x) % kWarpgroupThreads / kWarp;
  const int row = warp * 16 + lane / 4;
  const int col = warpgroup * kOwnQueries + lane % 4 * 2;
  const auto own = static_cast<std::uint32_t>(warpgroup);
  const std::uint32_t own_queries = own * kOwnQueries * kRowBytes;
  const std::uint32_t own_numbers = own * kOwnQueries * 4;
  const std::uint32_t own_columns = own * (kOwnColumns / kBoxColumns) * kKeyBox;
  const float scale = dims.score_factor<cap>() * kLog2E;
  const TileOrder tiles = tiles_of(dims, dims.keys_of<sight>(), kKeys);

  TwoStages at;
  for (std::uint32_t parity = 0;; parity ^= 1U) {
    wait(barriers.keys(), parity);
    const int index = seen(work.tile);
    if (index < 0) return;
    AttentionTile tile;
    float sums_k[kOwnColumns / 2];
    float sums_v[kOwnColumns / 2];
#pragma unroll
    for (int i = 0; i < kOwnColumns / 2; ++i) sums_k[i] = sums_v[i] = 0;
    for (int of_tile = 0; of_tile < dims.tile_heads; ++of_tile) {
      tile = tiles[seen(work.tile)];  // again and again, so that it occupies no register
      const int first_block = sight == Sight::part ? seen(work.first_block) : tile.index;
      float* sums_q = to.query +
                      dims.block_at(dims.queries_of<sight>(), dims.heads, tile.batch,
                                    tile.head * dims.tile_heads + of_tile, first_block) *
                          kSums<kHeadDim> +
                      warpgroup * kOwnSums;
      float rest_q[kOwnColumns / 4];  // the second half of the block before's dQ
      bool has_rest = false;
      const auto add_rest = [&] {
        if (has_rest) add_to(sums_q - kSums<kHeadDim> + kOwnSums / 2, rest_q);
        has_rest = true;
      };
      const int masked = sight == Sight::whole ? 0 : seen(work.masked);
      int left = seen(work.blocks);
      int first_ahead = row - col;
      if constexpr (sight == Sight::part) first_ahead += seen(work.ahead);
      for (int ahead = first_ahead; left > 0; --left, ahead -= kQueries) {
        const std::uint32_t query = memory + At::kQueryAt + at.stage * At::kQueryTile;
        const std::uint32_t output = memory + At::kOutputAt + at.stage * At::kQueryTile;
        const std::uint32_t numbers =
            memory + At::kStatisticsAt + at.stage * kStatistics + own_numbers;
        const std::uint32_t scores = memory + At::kScoresAt + at.stage * 2 * kKeyBox;
        const std::uint32_t d_scores = scores + kKeyBox;
        float p[kOwnQueries / 2];  // S^T, then P^T
        float x[kOwnQueries / 2];  // dP^T
        std::uint32_t narrowed[kOwnQueries / 16][4];
        const auto store_scores = [&](std::uint32_t tile_at) {
#pragma unroll
          for (int step = 0; step < kOwnQueries / 16; ++step)
            store_step(tile_at, warpgroup * (kOwnQueries / 16) + step, narrowed[step]);
        };
        wait(barriers.query(at.stage), at.parity);
        begin_products();
        multiply_heads<kHeadDim>(p, memory + At::kKeyAt, kKeyBox, query + own_queries, kQueryBox);
        wait(barriers.output(at.stage), at.parity);
        multiply_heads<kHeadDim>(x, memory + At::kValueAt, kKeyBox, output + own_queries,
                                 kQueryBox);
        add_rest();
        wait_for_products<1>();
        pin(p);
        cap_scores<cap>(p, dims);
        if (ahead > -kQueries) mask_later<cap>(p, ahead);
        if constexpr (sight == Sight::bounded)
          if (left <= masked) {
            const AttentionTile again = tiles[seen(work.tile)];
            mask_earlier<cap>(p, dims, again.batch, again.index * kKeys + row - ahead, ahead);
          }
        if constexpr (sight == Sight::part)
          if (left <= masked) {
            const int block = seen(work.first_block) + seen(work.blocks) - left;
            const int place = dims.query_place(block * kQueries) + col;
            mask_earlier<cap>(p, dims, tiles[seen(work.tile)].batch, place,
                              seen(work.place) + row - place);
          }
        probabilities<cap>(p, scale, numbers, narrowed);
        store_scores(scores);
        publish_stores();
        meet<kBothMeet, 2 * kWarpgroupThreads>();
        begin_products();
        multiply_tiles(sums_v, scores, output + own_columns);
        wait_for_products<1>();
        pin(x);
        score_gradients(p, x, numbers + kStatistics / 2, narrowed);
        store_scores(d_scores);
        publish_stores();
        meet<kBothMeet, 2 * kWarpgroupThreads>();
        float q[kOwnColumns / 4];  // the first half of dQ
        begin_products();
        multiply_keys(q, d_scores, memory + At::kKeyAt + own_columns);
        multiply_keys(rest_q, d_scores, memory + At::kKeyAt + own_columns + kKeyBox);
        multiply_tiles(sums_k, d_scores, query + own_columns);
        wait_for_products<2>();
        if (lane == 0) arrive(barriers.output_empty(at.stage));
        pin(q);
        add_to(sums_q, q);
        sums_q += kSums<kHeadDim>;
        wait_for_products<0>();
        pin(rest_q);
        if (lane == 0) arrive(barriers.query_empty(at.stage));
        at.next();
      }
      add_rest();
    }
    pin(sums_k);
    pin(sums_v);
    tile = tiles[seen(work.tile)];
    if (lane == 0) arrive(barriers.keys_empty());
    const int kv_head = tile.head * dims.tile_heads / dims.group();
    if (shares_sums(dims)) {
      const std::int64_t sums =
          dims.block_at(dims.queries_of<sight>(), dims.kv_heads, tile.batch, kv_head, tile.index) *
              kSums<kHeadDim> +
          warpgroup * kOwnSums;
      add_to(to.key + sums, sums_k);
      add_to(to.value + sums, sums_v);
      continue;
    }
    const auto place = [&](const kernels::HeadView<Bf16>& view) {
      return view.at(tile.batch, kv_head) +
             static_cast<std::int64_t>(tile.index * kKeys + row) * view.position +
             warpgroup * kOwnColumns + lane % 4 * 2;
    };
    store_rows(sums_k, dims.scale, place(d_key), d_key.position);
    store_rows(sums_v, 1, place(d_value), d_value.position);
  }
}

template <Sight sight, Cap cap>
Result<void> backward(const kernels::AttentionBackward<Bf16>& k, const AttentionBackwardMaps& maps,
                      cudaStream_t stream) {
  return run_backward < kHeadDim,
         sight == Sight::bounded > (gradients_256<sight, cap>, Layout::kBytes, k, maps, stream);
}

}  // namespace

Result<void> warpgroup_attention_backward_256(const kernels::AttentionBackward<Bf16>& k,
                                              const AttentionBackwardMaps& maps,
                                              cudaStream_t stream) {
  const bool capped = k.shape.score_cap > 0;
  if (!k.shape.share.is_whole())
    return capped ? backward<Sight::part, Cap::capped>(k, maps, stream)
                  : backward<Sight::part, Cap::none>(k, maps, stream);
  return capped ? backward<Sight::bounded, Cap::capped>(k, maps, stream)
                : backward<Sight::bounded, Cap::none>(k, maps, stream);
}

}  // namespace mfsdp::cuda
