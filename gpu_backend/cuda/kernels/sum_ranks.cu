// The sum of the ranks' contributions, on CUDA. Each element of every rank is read once, so the
// kernel is bound by memory.
#include "gpu_backend/cuda/kernels/exact_sums.cuh"
#include "gpu_backend/cuda/kernels/sums.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::SumRanks;

constexpr int kThreads = 256;
constexpr int kUnroll = 2;  ///< packs per thread
constexpr int kBatch = 4;   ///< number of ranks whose packs are loaded before the first is added

/// sums = (sums +) packs; the first rank starts the sum.
template <class In, int N>
__device__ void add_rank(const Pack<In, N>& pack, bool begins, float (&sums)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float value = element(pack, i);
    sums[i] = begins ? value : sums[i] + value;
  }
}

/// Blocks process kUnroll * kThreads packs of N elements each. N divides the count.
template <class In, class Out, int N, bool kAdds>
__global__ void __launch_bounds__(kThreads) sum(const SumRanks<In, Out> k) {
  const std::int64_t packs = k.count / N;
  const std::int64_t begin =
      static_cast<std::int64_t>(blockIdx.x) * kUnroll * kThreads + threadIdx.x;
  const auto at = [&](int u) { return begin + u * kThreads; };
  float out[kUnroll][N];
  if constexpr (kAdds)
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (at(u) < packs) load_widened<N>(k.out + at(u) * N, out[u]);
  float sums[kUnroll][N];
  for (std::int64_t first = 0; first < k.ranks; first += kBatch) {
    Pack<In, N> parts[kBatch][kUnroll];
#pragma unroll
    for (int b = 0; b < kBatch; ++b)
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (first + b < k.ranks && at(u) < packs)
          parts[b][u] = load_streaming<In, N>(k.in + (first + b) * k.count + at(u) * N);
#pragma unroll
    for (int b = 0; b < kBatch; ++b)
#pragma unroll
      for (int u = 0; u < kUnroll; ++u)
        if (first + b < k.ranks && at(u) < packs)
          add_rank<In, N>(parts[b][u], first + b == 0, sums[u]);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    if (at(u) >= packs) continue;
    if constexpr (kAdds)
#pragma unroll
      for (int i = 0; i < N; ++i) sums[u][i] = out[u][i] + sums[u][i];
    store_narrowed<N>(k.out + at(u) * N, sums[u]);
  }
}

__global__ void sum_on_grid(const SumRanks<float, float> k, const GridSteps grid) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= k.count) return;
  float sum = k.in[at];
  for (std::int64_t rank = 1; rank < k.ranks; ++rank) sum += k.in[rank * k.count + at];
  k.out[at] = grid.added(k.adds ? k.out[at] : 0.0F, sum);
}

template <class In, class Out, int N>
void launch(const SumRanks<In, Out>& k, cudaStream_t stream) {
  const dim3 blocks = grid_of(ceil_div(k.count / N, std::int64_t{kUnroll} * kThreads));
  if (k.adds)
    sum<In, Out, N, true><<<blocks, kThreads, 0, stream>>>(k);
  else
    sum<In, Out, N, false><<<blocks, kThreads, 0, stream>>>(k);
}

}  // namespace

template <class In, class Out>
Result<void> sum_ranks(const SumRanks<In, Out>& k, cudaStream_t stream, ExactOutlier* outlier) {
  if (k.grid) {
    if constexpr (std::is_same_v<In, float> && std::is_same_v<Out, float>) {
      MFSDP_LET(grid, grid_steps(*k.grid, KernelKind::sum_ranks, outlier));
      if (k.count == 0) return {};
      sum_on_grid<<<grid_of(ceil_div(k.count, kThreads)), kThreads, 0, stream>>>(k, grid);
      return launched("sum_ranks");
    } else {
      return expected_fp32(KernelKind::sum_ranks);
    }
  }
  if (k.count == 0) return {};
  constexpr int N = kPack<In>;
  const bool packs = k.count % N == 0 && is_aligned({k.in, k.out}, 16);
  if (packs)
    launch<In, Out, N>(k, stream);
  else
    launch<In, Out, 1>(k, stream);
  return launched("sum_ranks");
}

template Result<void> sum_ranks(const SumRanks<Bf16, Bf16>&, cudaStream_t, ExactOutlier*);
template Result<void> sum_ranks(const SumRanks<Bf16, float>&, cudaStream_t, ExactOutlier*);
template Result<void> sum_ranks(const SumRanks<Fp16, Bf16>&, cudaStream_t, ExactOutlier*);
template Result<void> sum_ranks(const SumRanks<Fp16, float>&, cudaStream_t, ExactOutlier*);
template Result<void> sum_ranks(const SumRanks<float, Bf16>&, cudaStream_t, ExactOutlier*);
template Result<void> sum_ranks(const SumRanks<float, float>&, cudaStream_t, ExactOutlier*);

}  // namespace mfsdp::cuda
