#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/exact_sums.cuh"
#include "gpu_backend/cuda/kernels/experts.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::ArrivalOrder;
using kernels::CombineRows;
using kernels::ExpertOrder;
using kernels::PeerOrder;
using kernels::PermuteRows;

// ---- order: a stable counting sort -------------------------------------------------------------
// Blocks of tokens count. One block converts the counts, expert by expert and block by block, to
// the first row of each. Then blocks of tokens place their rows. In a block each warp has
// consecutive pairs, so that places of equal experts are in the order of tokens.

constexpr int kBlockTokens = 256;  // for which the plan's workspace is sized
constexpr int kSortThreads = 256;
constexpr int kSortWarps = kSortThreads / kWarp;
constexpr int kScanThreads = 1024;

struct Pairs {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

__device__ Pairs pairs_of_block(const ExpertOrder& k) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kBlockTokens;
  const std::int64_t last = min(first + kBlockTokens, k.sizes.tokens);
  return {first * k.sizes.top_k, last * k.sizes.top_k};
}

__global__ void __launch_bounds__(kSortThreads)
    count_experts(const ExpertOrder k, std::int32_t* counts) {
  __shared__ std::int32_t own[kMostExperts];
  const auto experts = static_cast<int>(k.sizes.experts);
  for (int e = threadIdx.x; e < experts; e += kSortThreads) own[e] = 0;
  __syncthreads();
  const Pairs pairs = pairs_of_block(k);
  for (std::int64_t i = pairs.begin + threadIdx.x; i < pairs.end; i += kSortThreads)
    atomicAdd(own + k.indices[i], 1);
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kSortThreads)
    counts[std::int64_t{e} * gridDim.x + blockIdx.x] = own[e];
}

/// Replaces counts by the sums of earlier counts, and fills `ends`. One block, one piece per
/// thread.
__global__ void __launch_bounds__(kScanThreads)
    scan_counts(const ExpertOrder k, std::int32_t* counts, int blocks) {
  __shared__ std::int32_t of_warps[kScanThreads / kWarp];
  const std::int64_t total = k.sizes.experts * blocks;
  const std::int64_t piece = (total + kScanThreads - 1) / kScanThreads;
  const std::int64_t begin = min(piece * threadIdx.x, total);
  const std::int64_t end = min(begin + piece, total);
  std::int32_t sum = 0;
  for (std::int64_t i = begin; i < end; ++i) sum += counts[i];
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const auto before_in_warp = [lane](std::int32_t value) {
    std::int32_t up_to = value;
    for (int offset = 1; offset < kWarp; offset *= 2) {
      const std::int32_t other = __shfl_up_sync(~0U, up_to, offset);
      if (lane >= offset) up_to += other;
    }
    return up_to - value;
  };
  std::int32_t before = before_in_warp(sum);
  if (lane == kWarp - 1) of_warps[threadIdx.x / kWarp] = before + sum;
  __syncthreads();
  if (threadIdx.x < kWarp) {
    static_assert(kScanThreads / kWarp == kWarp);
    of_warps[lane] = before_in_warp(of_warps[lane]);
  }
  __syncthreads();
  before += of_warps[threadIdx.x / kWarp];
  for (std::int64_t i = begin; i < end; ++i) {
    const std::int32_t count = counts[i];
    counts[i] = before;
    before += count;
    if ((i + 1) % blocks == 0) k.ends[i / blocks] = before;
  }
}

__global__ void __launch_bounds__(kSortThreads)
    place_pairs(const ExpertOrder k, const std::int32_t* firsts) {
  extern __shared__ std::int32_t next[];  // [warp][expert]: counts, then the next row
  const auto experts = static_cast<int>(k.sizes.experts);
  for (int i = threadIdx.x; i < kSortWarps * experts; i += kSortThreads) next[i] = 0;
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  std::int32_t* const own = next + warp * experts;
  const Pairs of_block = pairs_of_block(k);
  const std::int64_t share = (of_block.end - of_block.begin + kSortWarps - 1) / kSortWarps;
  const std::int64_t begin = min(of_block.begin + share * warp, of_block.end);
  const std::int64_t end = min(begin + share, of_block.end);
  for (std::int64_t i = begin + lane; i < end; i += kWarp) atomicAdd(own + k.indices[i], 1);
  __syncthreads();
  for (int e = threadIdx.x; e < experts; e += kSortThreads) {
    std::int32_t row = firsts[std::int64_t{e} * gridDim.x + blockIdx.x];
    for (int w = 0; w < kSortWarps; ++w) {
      const std::int32_t count = next[w * experts + e];
      next[w * experts + e] = row;
      row += count;
    }
  }
  __syncthreads();
  for (std::int64_t first = begin; first < end; first += kWarp) {
    const std::int64_t i = first + lane;
    const std::int32_t expert = i < end ? k.indices[i] : -1;
    const std::uint32_t equal = __match_any_sync(~0U, expert);
    const int before = __popc(equal & ((1U << lane) - 1U));
    const std::int32_t row = expert < 0 ? 0 : own[expert];
    __syncwarp();
    if (expert >= 0) {
      if (before == 0) own[expert] = row + __popc(equal);
      k.places[i] = row + before;
      k.order[row + before] = static_cast<std::int32_t>(i);
    }
    __syncwarp();
  }
}

// ---- rows that go to other ranks ---------------------------------------------------------------

constexpr int kPlaceThreads = 1024;
constexpr std::int64_t kPlaceBlocks = 256;

/// One thread per row of a block. Rows beyond the block's capacity are reported, and go to the
/// place of its last row: the run ends before the results are used.
__global__ void __launch_bounds__(kPlaceThreads)
    place_in_blocks(const PeerOrder k, ExactOutlier* outlier) {
  const std::int64_t block = k.m / k.peers;
  const std::int64_t of_peer = k.sizes.experts / k.peers;
  const std::int64_t first = std::int64_t{blockIdx.x} * kPlaceThreads + threadIdx.x;
  const std::int64_t step = std::int64_t{gridDim.x} * kPlaceThreads;
  const auto end_of = [&](std::int64_t expert) -> std::int64_t {
    return expert < 0 ? 0 : k.ends[expert];
  };
  for (std::int64_t e = first; e < k.sizes.experts; e += step) {
    const std::int64_t begin = end_of(e / of_peer * of_peer - 1);
    k.counts[e] = static_cast<std::int32_t>(min(end_of(e) - begin, block) -
                                            min(max(end_of(e - 1), begin) - begin, block));
  }
  for (std::int64_t i = first; i < k.m; i += step) {
    const std::int64_t peer = i / block;
    const std::int64_t row = end_of(peer * of_peer - 1) + i % block;
    const std::int64_t end = end_of((peer + 1) * of_peer - 1);
    const std::int32_t pair = row < end ? k.row_order[row] : -1;
    k.order[i] = pair;
    if (pair >= 0) k.places[pair] = static_cast<std::int32_t>(i);
    if (i % block != block - 1 || row + 1 >= end) continue;
    for (std::int64_t over = row + 1; over < end; ++over)
      k.places[k.row_order[over]] = static_cast<std::int32_t>(i);
    report(outlier, {.fault = ExactFault::rows,
                     .kernel = KernelKind::peer_order,
                     .value = static_cast<float>(block + end - row - 1),
                     .limit = static_cast<float>(block),
                     .exponent = 0});
  }
}

/// The inclusive prefix sum over all threads of the block.
__device__ std::int32_t sum_up_to(std::int32_t value, std::int32_t* sums) {
  sums[threadIdx.x] = value;
  __syncthreads();
  for (int offset = 1; offset < kPlaceThreads; offset *= 2) {
    const std::int32_t before =
        static_cast<int>(threadIdx.x) >= offset ? sums[threadIdx.x - offset] : 0;
    __syncthreads();
    sums[threadIdx.x] += before;
    __syncthreads();
  }
  return sums[threadIdx.x];
}

/// Each block computes the sums of all counts; then each thread has a row.
__global__ void __launch_bounds__(kPlaceThreads) place_by_expert(const ArrivalOrder k) {
  __shared__ std::int32_t by_peer[kPlaceThreads];    // [peer][expert]
  __shared__ std::int32_t by_expert[kPlaceThreads];  // [expert][peer]
  const auto peers = static_cast<int>(k.peers);
  const auto experts = static_cast<int>(k.experts);
  const int counts = peers * experts;
  const auto own = static_cast<int>(threadIdx.x);
  sum_up_to(own < counts ? k.counts[own] : 0, by_peer);
  sum_up_to(own < counts ? k.counts[own % peers * experts + own / peers] : 0, by_expert);
  if (blockIdx.x == 0 && own < experts) k.ends[own] = by_expert[own * peers + peers - 1];
  const std::int32_t total = by_expert[counts - 1];
  const std::int64_t block = k.m / k.peers;
  const std::int64_t step = std::int64_t{gridDim.x} * kPlaceThreads;
  for (std::int64_t i = std::int64_t{blockIdx.x} * kPlaceThreads + own; i < k.m; i += step) {
    if (i >= total) k.order[i] = -1;
    const auto peer = static_cast<int>(i / block);
    const std::int32_t* const sums = by_peer + peer * experts;
    const std::int64_t row = i % block + (peer == 0 ? 0 : sums[-1]);  // among all rows that arrived
    if (row >= sums[experts - 1]) {
      k.places[i] = -1;
      continue;
    }
    int low = 0;  // the first expert with more rows up to it
    int high = experts - 1;
    while (low < high) {
      const int middle = (low + high) / 2;
      if (sums[middle] > row)
        high = middle;
      else
        low = middle + 1;
    }
    const std::int64_t before = low == 0 && peer == 0 ? 0 : sums[low - 1];
    const int at = low * peers + peer;
    const std::int64_t place = (at == 0 ? 0 : by_expert[at - 1]) + row - before;
    k.places[i] = static_cast<std::int32_t>(place);
    k.order[place] = static_cast<std::int32_t>(i);
  }
}

// ---- rows --------------------------------------------------------------------------------------

constexpr int kRowThreads = 256;
constexpr int kRowsAtOnce = 4;  // loads in flight of a thread

/// Number of threads for a row of `packs` packs: complete warps.
int threads_of(std::int64_t packs) {
  return static_cast<int>(
      std::min<std::int64_t>(ceil_div(packs, kWarp) * kWarp, std::int64_t{kRowThreads}));
}

template <class T, int N>
__global__ void __launch_bounds__(kRowThreads) permute(const PermuteRows<T> k) {
  const std::int64_t first = std::int64_t{blockIdx.x} * kRowsAtOnce;
  const T* from[kRowsAtOnce];
  bool there[kRowsAtOnce];
#pragma unroll
  for (int i = 0; i < kRowsAtOnce; ++i) {
    const std::int32_t row = first + i < k.rows ? k.order[first + i] : -1;
    there[i] = row >= 0;
    from[i] = k.input + (there[i] ? row / k.top_k * k.cols : 0);
  }
  for (std::int64_t col = std::int64_t{threadIdx.x} * N; col < k.cols; col += blockDim.x * N) {
    Pack<T, N> packs[kRowsAtOnce];
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i) packs[i] = load<T, N>(from[i] + col);
#pragma unroll
    for (int i = 0; i < kRowsAtOnce; ++i)
      if (there[i]) store_streaming<N>(k.output + (first + i) * k.cols + col, packs[i]);
  }
  if (k.weights == nullptr || threadIdx.x >= kRowsAtOnce || first + threadIdx.x >= k.rows) return;
  const std::int32_t row = k.order[first + threadIdx.x];
  if (row >= 0) k.row_weights[first + threadIdx.x] = k.weights[row];
}

template <class T, int N>
__global__ void __launch_bounds__(kRowThreads) combine(const CombineRows<T> k) {
  const std::int64_t t = blockIdx.x;
  const std::int32_t* const places = k.places + t * k.top_k;
  for (std::int64_t col = std::int64_t{threadIdx.x} * N; col < k.cols; col += blockDim.x * N) {
    T* const out = k.output + t * k.cols + col;
    float sum[N] = {};
    if (k.adds) load_widened<N>(out, sum);
    for (std::int64_t i = 0; i < k.top_k; i += kRowsAtOnce) {
      Pack<T, N> packs[kRowsAtOnce];
#pragma unroll
      for (int j = 0; j < kRowsAtOnce; ++j)
        if (i + j < k.top_k)
          packs[j] = load_streaming<T, N>(k.input + places[i + j] * k.cols + col);
#pragma unroll
      for (int j = 0; j < kRowsAtOnce; ++j)
        if (i + j < k.top_k)
#pragma unroll
          for (int n = 0; n < N; ++n) sum[n] += element(packs[j], n);
    }
    store_narrowed<N>(out, sum);
  }
  if (k.weights == nullptr) return;
  for (std::int64_t i = threadIdx.x; i < k.top_k; i += blockDim.x)
    k.weights[t * k.top_k + i] = k.row_weights[places[i]];
}

}  // namespace

std::int64_t expert_order_workspace(const kernels::RoutingSizes& sizes) {
  return std::int64_t{sizeof(std::int32_t)} * sizes.experts *
         ceil_div(std::max<std::int64_t>(sizes.tokens, 1), kBlockTokens);
}

Result<void> expert_order(const ExpertOrder& k, cudaStream_t stream) {
  const kernels::RoutingSizes& s = k.sizes;
  MFSDP_TRY(check_experts(s.experts));
  if (s.tokens == 0)
    return check(
        cudaMemsetAsync(k.ends, 0, static_cast<std::size_t>(s.experts) * sizeof *k.ends, stream),
        "expert_order");
  MFSDP_TRY(check_order_workspace(expert_order_workspace(s),
                                  static_cast<std::int64_t>(k.workspace.size())));
  auto* const counts = reinterpret_cast<std::int32_t*>(k.workspace.data());
  const std::int64_t blocks = ceil_div(s.tokens, kBlockTokens);
  count_experts<<<grid_of(blocks), kSortThreads, 0, stream>>>(k, counts);
  scan_counts<<<1, kScanThreads, 0, stream>>>(k, counts, static_cast<int>(blocks));
  const auto shared = kSortWarps * static_cast<std::size_t>(s.experts) * sizeof(std::int32_t);
  place_pairs<<<grid_of(blocks), kSortThreads, shared, stream>>>(k, counts);
  return launched("expert_order");
}

Result<void> peer_order(const PeerOrder& k, ExactOutlier* outlier, cudaStream_t stream) {
  MFSDP_TRY(check_outlier(KernelKind::peer_order, outlier));
  const std::int64_t blocks = ceil_div(std::max(k.m, k.sizes.experts), kPlaceThreads);
  place_in_blocks<<<grid_of(std::min(blocks, kPlaceBlocks)), kPlaceThreads, 0, stream>>>(k,
                                                                                         outlier);
  return launched("peer_order");
}

Result<void> arrival_order(const ArrivalOrder& k, cudaStream_t stream) {
  static_assert(kPlaceThreads == kMostExperts);
  MFSDP_TRY(check_experts(k.experts * k.peers));
  const std::int64_t blocks = std::max<std::int64_t>(ceil_div(k.m, kPlaceThreads), 1);
  place_by_expert<<<grid_of(std::min(blocks, kPlaceBlocks)), kPlaceThreads, 0, stream>>>(k);
  return launched("arrival_order");
}

template <class T>
Result<void> permute_rows(const PermuteRows<T>& k, cudaStream_t stream) {
  if (k.rows == 0 || k.cols == 0) return {};
  constexpr int N = kPack<T>;
  const dim3 grid = grid_of(ceil_div(k.rows, kRowsAtOnce));
  if (k.cols % N == 0 && is_aligned({k.input, k.output}, 16))
    permute<T, N><<<grid, threads_of(k.cols / N), 0, stream>>>(k);
  else
    permute<T, 1><<<grid, threads_of(k.cols), 0, stream>>>(k);
  return launched("permute_rows");
}

template <class T>
Result<void> combine_rows(const CombineRows<T>& k, cudaStream_t stream) {
  if (k.tokens == 0 || k.cols == 0) return {};
  constexpr int N = kPack<T>;
  if (k.cols % N == 0 && is_aligned({k.input, k.output}, 16))
    combine<T, N><<<grid_of(k.tokens), threads_of(k.cols / N), 0, stream>>>(k);
  else
    combine<T, 1><<<grid_of(k.tokens), threads_of(k.cols), 0, stream>>>(k);
  return launched("combine_rows");
}

template Result<void> permute_rows(const PermuteRows<Bf16>&, cudaStream_t);
template Result<void> permute_rows(const PermuteRows<Fp16>&, cudaStream_t);
template Result<void> permute_rows(const PermuteRows<float>&, cudaStream_t);
template Result<void> combine_rows(const CombineRows<Bf16>&, cudaStream_t);
template Result<void> combine_rows(const CombineRows<Fp16>&, cudaStream_t);
template Result<void> combine_rows(const CombineRows<float>&, cudaStream_t);

}  // namespace mfsdp::cuda
