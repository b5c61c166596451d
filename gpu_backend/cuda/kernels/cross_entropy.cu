#include "gpu_backend/cuda/kernels/grid_sum.cuh"
#include "gpu_backend/cuda/kernels/tokens.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::CrossEntropy;

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / kWarp;
/// Bytes of a row that are kept between its two passes: the shared memory of a multiprocessor of
/// compute capability 9.0, less the kernel's own.
constexpr int kKeptBytes = 224 * 1024;
constexpr int kOwnBytes = 2 * 1024;
/// Bytes of a block's next row that are prefetched into the L2 cache while this row's gradient is
/// written. More would be evicted before it is read.
constexpr int kAheadBytes = 32 * 1024;
constexpr int kLineBytes = 128;
/// Number of blocks that compute gradients: one for each multiprocessor of an H100. It is constant,
/// so that sums have the same order on every GPU.
constexpr std::int64_t kBlocks = 132;

template <class T>
using Stored = std::remove_const_t<T>;

/// e^(x - largest) for logits stored as T. bf16 keeps 8 bits of a result, fp16 11: for these one
/// multiply-add and the hardware's power of two are exact enough.
template <class T>
__device__ float exponential(float x, float largest) {
  if constexpr (std::is_same_v<Stored<T>, float>) {
    return expf(x - largest);
  } else {
    constexpr float log2_e = 1.44269504F;
    float power;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(fmaf(x, log2_e, -largest * log2_e)));
    return power;
  }
}

/// Losses are scaled only in fp16.
template <class T>
inline constexpr bool kScaled = std::is_same_v<T, Fp16>;

template <class T>
__device__ float scale_of(const CrossEntropy<T>& k) {
  return kScaled<T> && k.scale != nullptr ? k.scale->scale : 1.0F;
}

/// The softcap of logits, if there is one: cap * share, share = tanh(logit / cap).
struct Softcap {
  float cap = 0;
  float inverse = 0;
};
template <bool kCapped>
__device__ Softcap softcap_of(float cap) {
  return {.cap = cap, .inverse = kCapped ? 1 / cap : 0};
}
/// For logits stored in 16 bits, tanh(x) = 1 - 2 / (1 + e^2x) by the hardware's power of two and
/// reciprocal, whose error is some 1e-7.
template <class T>
__device__ float share_of(float logit, const Softcap& softcap) {
  if constexpr (std::is_same_v<Stored<T>, float>) {
    return tanhf(logit / softcap.cap);
  } else {
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;"
        : "=f"(inverse)
        : "f"(1 + exponential<T>(2 * logit * softcap.inverse, 0)));
    return 1 - 2 * inverse;
  }
}
template <class T, bool kCapped, int N>
__device__ void cap_all(float (&values)[N], const Softcap& softcap) {
  if constexpr (kCapped) {
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = softcap.cap * share_of<T>(values[i], softcap);
  }
}
/// The slope of the softcap: 1 - tanh^2.
template <class T>
__device__ float cap_slope(float capped, const Softcap& softcap) {
  const float share =
      std::is_same_v<Stored<T>, float> ? capped / softcap.cap : capped * softcap.inverse;
  return 1 - share * share;
}

/// Maximum of some logits, and the sum of exp(logit - largest) over them.
struct Softmax {
  float largest;
  float sum;
};

template <class T>
__device__ Softmax merged(Softmax a, Softmax b) {
  const float largest = fmaxf(a.largest, b.largest);
  const auto part = [largest](const Softmax& s) {
    // An empty sum: -inf - -inf would be NaN.
    return s.sum == 0 ? 0.0F : s.sum * exponential<T>(s.largest, largest);
  };
  return {.largest = largest, .sum = part(a) + part(b)};
}

template <class T>
__device__ Softmax warp_merged(Softmax s) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    s = merged<T>(s, {.largest = __shfl_xor_sync(0xffffffffU, s.largest, offset),
                      .sum = __shfl_xor_sync(0xffffffffU, s.sum, offset)});
  return s;
}

/// Adds values of the row.
template <class T, int N>
__device__ __forceinline__ void add_values(Softmax& softmax, const float (&values)[N]) {
  float largest = values[0];
#pragma unroll
  for (int i = 1; i < N; ++i) largest = fmaxf(largest, values[i]);
  if (largest > softmax.largest) {
    softmax.sum *= exponential<T>(softmax.largest, largest);
    softmax.largest = largest;
  }
#pragma unroll
  for (int i = 0; i < N; ++i) softmax.sum += exponential<T>(values[i], softmax.largest);
}

/// The softmax of the whole row, in every thread.
template <class T>
__device__ Softmax block_merged(Softmax s, Softmax* shared) {
  s = warp_merged<T>(s);
  __syncthreads();  // the previous row has been read
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = s;
  __syncthreads();
  return warp_merged<T>(shared[threadIdx.x % kWarp]);
}

__device__ void fetch_ahead(const void* from, std::int64_t bytes) {
  const auto* const begin = static_cast<const char*>(from);
  for (std::int64_t at = threadIdx.x * kLineBytes; at < bytes; at += kThreads * kLineBytes)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(begin + at));
}

/// Shared memory of the kernel. Its type must not depend on T.
extern __shared__ uint4 kept_bytes[];

/// Block b processes the rows b, b + gridDim.x, ... `kRagged`: the vocabulary ends inside a pack,
/// whose other elements are between rows: read, and never written.
template <class T, int N, bool kCapped, bool kRagged>
__global__ void __launch_bounds__(kThreads)
    loss_of_rows(const CrossEntropy<T> k, int kept, GridScratch* scratch) {
  constexpr bool kGradient = !std::is_const_v<T>;
  using Row = Pack<Stored<T>, N>;
  __shared__ Softmax shared[kWarps];
  auto* const kept_packs = reinterpret_cast<Row*>(kept_bytes);
  const int packs = static_cast<int>(ceil_div(k.vocab, std::int64_t{N}));
  const int in_last = kRagged ? static_cast<int>(k.vocab % N) : N;
  const auto is_cut = [&](int at) { return kRagged && at == packs - 1; };
  const auto store_part = [&](T* own, const float(&values)[N]) {
    if constexpr (kRagged && !std::is_const_v<T>) {
#pragma unroll
      for (int i = 0; i < N; ++i)
        if (i < in_last) own[i] = narrowed<T>(values[i]);
    }
  };
  const auto rows = static_cast<std::int64_t>(k.labels.size());
  const float scale = scale_of(k);
  const Softcap softcap = softcap_of<kCapped>(k.cap);
  TwoSums sums;  // of this block's rows; thread 0's count
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* const logits = k.logits + row * k.pitch();
    const std::int32_t label = k.labels[row];
    if (label == k.ignored) {
      if constexpr (kGradient) {
        const float zeros[N] = {};
        for (int at = static_cast<int>(threadIdx.x); at < packs; at += kThreads) {
          if (is_cut(at))
            store_part(logits + std::int64_t{at} * N, zeros);
          else
            store_narrowed<N>(logits + std::int64_t{at} * N, zeros);
        }
      }
      continue;
    }
    const bool known = label >= 0 && label < k.vocab;
    float of_label[1] = {known ? widened(logits[label]) : __int_as_float(0x7fffffff)};
    cap_all<T, kCapped>(of_label, softcap);
    Softmax softmax{.largest = -INFINITY, .sum = 0};
#pragma unroll 4
    for (int at = static_cast<int>(threadIdx.x); at < packs; at += kThreads) {
      const bool is_read_again = kGradient && at >= kept;
      const auto* const from = logits + std::int64_t{at} * N;
      const Row pack =
          is_read_again ? load<Stored<T>, N>(from) : load_streaming<Stored<T>, N>(from);
      if (kGradient && !is_read_again) kept_packs[at] = pack;
      float values[N];
      widen_all(pack, values);
      cap_all<T, kCapped>(values, softcap);
      if (is_cut(at))
#pragma unroll
        for (int i = 0; i < N; ++i)
          if (i >= in_last) values[i] = -INFINITY;
      add_values<T>(softmax, values);
    }
    softmax = block_merged<T>(softmax, shared);  // contains a barrier: the label's logit has been
                                                 // read
    sums.first += logf(softmax.sum) + softmax.largest - of_label[0];
    sums.second += 1;
    if constexpr (kGradient) {
      // NaN if the label is not in the vocabulary.
      const float inverse = known ? 1 / softmax.sum : of_label[0];
      if (row + gridDim.x < rows)
        fetch_ahead(logits + gridDim.x * k.pitch(),
                    std::min<std::int64_t>(k.vocab * sizeof(T), kAheadBytes));
#pragma unroll 4
      for (int at = static_cast<int>(threadIdx.x); at < packs; at += kThreads) {
        float values[N];
        T* const own = logits + std::int64_t{at} * N;
        widen_all(at < kept ? kept_packs[at] : load<Stored<T>, N>(own), values);
        cap_all<T, kCapped>(values, softcap);
        float slopes[N];
        if constexpr (kCapped) {
#pragma unroll
          for (int i = 0; i < N; ++i) slopes[i] = cap_slope<T>(values[i], softcap);
        }
#pragma unroll
        for (int i = 0; i < N; ++i)
          values[i] = exponential<T>(values[i], softmax.largest) * inverse;
        if (at == label / N)
#pragma unroll
          for (int i = 0; i < N; ++i) values[i] -= i == label % N ? 1.0F : 0.0F;
        if constexpr (kCapped) {
#pragma unroll
          for (int i = 0; i < N; ++i) values[i] *= slopes[i];
        }
        if constexpr (kScaled<T>) {
#pragma unroll
          for (int i = 0; i < N; ++i) values[i] *= scale;
        }
        if (is_cut(at))
          store_part(own, values);
        else
          store_streaming<N>(own, narrow_all<T, N>(values));
      }
    }
  }
  if (grid_sum(sums, scratch) && threadIdx.x == 0) {
    k.sums[0] = static_cast<float>(k.adds ? k.sums[0] + sums.first : sums.first);
    k.sums[1] = static_cast<float>(k.adds ? k.sums[1] + sums.second : sums.second);
  }
}

// ---- rows whose columns ranks share -------------------------------------------------------------

/// Block b processes the rows b, b + gridDim.x, ...
template <class T, int N, bool kCapped>
__global__ void __launch_bounds__(kThreads) softmax_of_part(const kernels::SoftmaxParts<T> k) {
  __shared__ Softmax shared[kWarps];
  const Softcap softcap = softcap_of<kCapped>(k.cap);
  const int packs = static_cast<int>(k.vocab / N);
  const auto rows = static_cast<std::int64_t>(k.labels.size());
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const T* const logits = k.logits + row * k.row;
    Softmax softmax{.largest = -INFINITY, .sum = 0};
    for (int at = static_cast<int>(threadIdx.x); at < packs; at += kThreads) {
      float values[N];
      widen_all(load<T, N>(logits + std::int64_t{at} * N), values);
      cap_all<T, kCapped>(values, softcap);
      add_values<T>(softmax, values);
    }
    softmax = block_merged<T>(softmax, shared);
    if (threadIdx.x != 0) continue;
    const std::int64_t own = k.labels[row] - k.vocab_begin;
    float of_label[1] = {own >= 0 && own < k.vocab ? widened(logits[own]) : 0.0F};
    cap_all<T, kCapped>(of_label, softcap);
    k.output[row] = {.largest = softmax.largest, .sum = softmax.sum, .of_label = of_label[0]};
  }
}

/// The same on every rank: parts are added in the order of ranks.
template <class T>
__device__ Softmax merged_parts(const CrossEntropy<T>& k, std::int64_t rows, std::int64_t row,
                                float& of_label) {
  Softmax all{.largest = -INFINITY, .sum = 0};
  of_label = 0;
  for (std::int64_t p = 0; p < k.peers; ++p)
    all.largest = fmaxf(all.largest, k.parts[p * rows + row].largest);
  for (std::int64_t p = 0; p < k.peers; ++p) {
    const auto part = k.parts[p * rows + row];
    all.sum += part.sum * exponential<T>(part.largest, all.largest);
    of_label += part.of_label;
  }
  return all;
}

template <class T, int N, bool kCapped>
__global__ void __launch_bounds__(kThreads)
    loss_of_parts(const CrossEntropy<T> k, GridScratch* scratch) {
  constexpr bool kGradient = !std::is_const_v<T>;
  const int packs = static_cast<int>(k.vocab / N);
  const auto rows = static_cast<std::int64_t>(k.labels.size());
  const float scale = scale_of(k);
  const Softcap softcap = softcap_of<kCapped>(k.cap);
  TwoSums sums;  // of this block's rows; thread 0's count
  for (std::int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    T* const logits = k.logits + row * k.pitch();
    const std::int32_t label = k.labels[row];
    if (label == k.ignored) {
      if constexpr (kGradient) {
        const float zeros[N] = {};
        for (int at = static_cast<int>(threadIdx.x); at < packs; at += kThreads)
          store_narrowed<N>(logits + std::int64_t{at} * N, zeros);
      }
      continue;
    }
    const bool known = label >= 0 && label < k.vocab * k.peers;
    float of_label = 0;
    const Softmax softmax = merged_parts(k, rows, row, of_label);
    // NaN if the label is not in the vocabulary.
    const float loss = known ? logf(softmax.sum) + softmax.largest - of_label : NAN;
    sums.first += loss;
    sums.second += 1;
    if constexpr (kGradient) {
      const float inverse = known ? 1 / softmax.sum : NAN;
      const std::int64_t own = label - k.vocab_begin;
      for (int at = static_cast<int>(threadIdx.x); at < packs; at += kThreads) {
        float values[N];
        T* const mine = logits + std::int64_t{at} * N;
        widen_all(load<Stored<T>, N>(mine), values);
        cap_all<T, kCapped>(values, softcap);
#pragma unroll
        for (int i = 0; i < N; ++i) {
          const float slope = kCapped ? cap_slope<T>(values[i], softcap) : 1.0F;
          values[i] = exponential<T>(values[i], softmax.largest) * inverse;
          if (own == std::int64_t{at} * N + i) values[i] -= 1.0F;
          if constexpr (kCapped) values[i] *= slope;
          if constexpr (kScaled<T>) values[i] *= scale;
        }
        store_streaming<N>(mine, narrow_all<T, N>(values));
      }
    }
  }
  if (grid_sum(sums, scratch) && threadIdx.x == 0) {
    k.sums[0] = static_cast<float>(k.adds ? k.sums[0] + sums.first : sums.first);
    k.sums[1] = static_cast<float>(k.adds ? k.sums[1] + sums.second : sums.second);
  }
}

dim3 blocks_for(std::size_t rows) {
  return grid_of(std::clamp<std::int64_t>(static_cast<std::int64_t>(rows), 1, 2 * kBlocks));
}

template <class T, int N>
Result<void> launch_parts(const CrossEntropy<T>& k, cudaStream_t stream) {
  MFSDP_LET(scratch, grid_scratch(k.workspace, "cross_entropy", stream));
  const dim3 blocks = blocks_for(k.labels.size());
  if (k.cap > 0)
    loss_of_parts<T, N, true><<<blocks, kThreads, 0, stream>>>(k, scratch);
  else
    loss_of_parts<T, N, false><<<blocks, kThreads, 0, stream>>>(k, scratch);
  return launched("cross_entropy");
}

template <class T, int N, bool kCapped>
Result<void> launch_softmax(const kernels::SoftmaxParts<T>& k, cudaStream_t stream) {
  softmax_of_part<T, N, kCapped><<<blocks_for(k.labels.size()), kThreads, 0, stream>>>(k);
  return launched("softmax_parts");
}

/// kKeptBytes, or the shared memory of a smaller device.
Result<int> most_kept_bytes() {
  int device = 0;
  int most = 0;
  MFSDP_TRY(check(cudaGetDevice(&device), "cudaGetDevice", "cross_entropy"));
  MFSDP_TRY(check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device),
                  "cudaDeviceGetAttribute", "cross_entropy"));
  return std::clamp(most - kOwnBytes, 0, kKeptBytes);
}

template <class T, int N, bool kCapped, bool kRagged>
Result<void> launch(const CrossEntropy<T>& k, cudaStream_t stream) {
  MFSDP_LET(scratch, grid_scratch(k.workspace, "cross_entropy", stream));
  const std::int64_t pack_bytes = N * sizeof(T);
  MFSDP_LET(most, most_kept_bytes());
  constexpr bool is_loss_alone = std::is_const_v<T>;
  const std::int64_t packs = ceil_div(k.vocab, std::int64_t{N});
  const auto kept = is_loss_alone ? 0 : static_cast<int>(std::min(packs, most / pack_bytes));
  const auto shared = static_cast<int>(kept * pack_bytes);
  MFSDP_TRY(check(cudaFuncSetAttribute(loss_of_rows<T, N, kCapped, kRagged>,
                                       cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
                  "cudaFuncSetAttribute", "cross_entropy"));
  const auto rows = static_cast<std::int64_t>(k.labels.size());
  const std::int64_t blocks = is_loss_alone ? 2 * kBlocks : kBlocks;  // they need no row in shared
                                                                      // memory
  const dim3 grid = grid_of(std::clamp<std::int64_t>(rows, 1, blocks));
  loss_of_rows<T, N, kCapped, kRagged>
      <<<grid, kThreads, static_cast<std::size_t>(shared), stream>>>(k, kept, scratch);
  return launched("cross_entropy");
}

template <class T, int N, bool kRagged>
Result<void> launch(const CrossEntropy<T>& k, cudaStream_t stream) {
  return k.cap > 0 ? launch<T, N, true, kRagged>(k, stream)
                   : launch<T, N, false, kRagged>(k, stream);
}

}  // namespace

template <class T>
Result<void> cross_entropy(const CrossEntropy<T>& k, cudaStream_t stream) {
  constexpr int N = kPack<Stored<T>>;
  const bool packs = k.pitch() % N == 0 && is_aligned({k.logits}, 16);
  if (k.parts != nullptr)
    return packs && k.vocab % N == 0 ? launch_parts<T, N>(k, stream)
                                     : launch_parts<T, 1>(k, stream);
  if (!packs) return launch<T, 1, false>(k, stream);
  return k.vocab % N == 0 ? launch<T, N, false>(k, stream) : launch<T, N, true>(k, stream);
}

template <class T>
Result<void> softmax_parts(const kernels::SoftmaxParts<T>& k, cudaStream_t stream) {
  constexpr int N = kPack<T>;
  const bool packs = k.vocab % N == 0 && k.row % N == 0 && is_aligned({k.logits}, 16);
  if (k.cap > 0)
    return packs ? launch_softmax<T, N, true>(k, stream) : launch_softmax<T, 1, true>(k, stream);
  return packs ? launch_softmax<T, N, false>(k, stream) : launch_softmax<T, 1, false>(k, stream);
}

template Result<void> softmax_parts(const kernels::SoftmaxParts<Bf16>&, cudaStream_t);
template Result<void> softmax_parts(const kernels::SoftmaxParts<Fp16>&, cudaStream_t);
template Result<void> softmax_parts(const kernels::SoftmaxParts<float>&, cudaStream_t);

template Result<void> cross_entropy(const CrossEntropy<Bf16>&, cudaStream_t);
template Result<void> cross_entropy(const CrossEntropy<const Bf16>&, cudaStream_t);
template Result<void> cross_entropy(const CrossEntropy<Fp16>&, cudaStream_t);
template Result<void> cross_entropy(const CrossEntropy<const Fp16>&, cudaStream_t);
template Result<void> cross_entropy(const CrossEntropy<float>&, cudaStream_t);
template Result<void> cross_entropy(const CrossEntropy<const float>&, cudaStream_t);

}  // namespace mfsdp::cuda
