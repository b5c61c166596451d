#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/head_groups.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::HeadGroups;
using kernels::JoinHeads;
using kernels::SplitHeads;

constexpr int kThreads = 256;

/// A block has one row of one group; threads walk its columns in packs of equal bytes.
template <bool kSplits, class Pack>
__global__ void __launch_bounds__(kThreads)
    regroup(const HeadGroups g, const Pack* __restrict__ input, Pack* __restrict__ output) {
  const std::int64_t group = std::int64_t{blockIdx.x} / g.rows;
  const std::int64_t row = std::int64_t{blockIdx.x} % g.rows;
  const std::int64_t cols = g.cols / g.groups;
  const std::int64_t grouped = std::int64_t{blockIdx.x} * cols;
  for (std::int64_t col = threadIdx.x; col < cols; col += kThreads) {
    const std::int64_t joined = row * g.cols + g.column(group, col);
    if constexpr (kSplits)
      output[grouped + col] = input[joined];
    else
      output[joined] = input[grouped + col];
  }
}

/// Packs of 16 bytes where the columns of each kind and the addresses allow them.
template <bool kSplits, class T>
Result<void> regroup_rows(HeadGroups g, const T* input, T* output, cudaStream_t stream) {
  if (g.rows == 0) return {};
  constexpr std::int64_t kPack = 16 / static_cast<std::int64_t>(sizeof(T));
  const auto addresses =
      reinterpret_cast<std::uintptr_t>(input) | reinterpret_cast<std::uintptr_t>(output);
  const std::int64_t part = kPack * g.groups;
  const auto blocks = grid_of(g.rows * g.groups);
  if (addresses % 16 == 0 && g.query_cols() % part == 0 && g.key_cols % part == 0) {
    g.cols /= kPack;
    g.key_cols /= kPack;
    regroup<kSplits><<<blocks, kThreads, 0, stream>>>(g, reinterpret_cast<const uint4*>(input),
                                                      reinterpret_cast<uint4*>(output));
  } else {
    regroup<kSplits><<<blocks, kThreads, 0, stream>>>(g, input, output);
  }
  return launched(kSplits ? "split_heads" : "join_heads");
}

}  // namespace

template <class T>
Result<void> split_heads(const SplitHeads<T>& k, cudaStream_t stream) {
  return regroup_rows<true>(k.groups, k.input, k.output, stream);
}

template <class T>
Result<void> join_heads(const JoinHeads<T>& k, cudaStream_t stream) {
  return regroup_rows<false>(k.groups, k.input, k.output, stream);
}

#define MFSDP_INSTANTIATE(T)                                             \
  template Result<void> split_heads(const SplitHeads<T>&, cudaStream_t); \
  template Result<void> join_heads(const JoinHeads<T>&, cudaStream_t)
MFSDP_INSTANTIATE(Bf16);
MFSDP_INSTANTIATE(Fp16);
MFSDP_INSTANTIATE(float);
#undef MFSDP_INSTANTIATE

}  // namespace mfsdp::cuda
