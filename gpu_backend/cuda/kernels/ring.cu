#include <bit>

#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/ring.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::AddRows;
using kernels::AttentionMerge;
using kernels::JoinKeys;
using kernels::TakeKeys;

constexpr int kThreads = 256;

/// `lanes` neighbours, a power of two, have one head of a row; each merges packs of N elements.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) merge(const AttentionMerge<T> k, int lanes) {
  const std::int64_t thread = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t at = thread / lanes;
  const int lane = static_cast<int>(thread % lanes);
  const bool is_head = at < k.rows * k.heads;
  const float own = is_head ? k.log_sum_exp[at] : 0;
  const float other = is_head ? k.other_log_sum_exp[at] : -INFINITY;
  __syncwarp();  // all lanes have read them
  if (other == -INFINITY) return;
  const float largest = fmaxf(own, other);
  const float own_sum = expf(own - largest);
  const float other_sum = expf(other - largest);
  const float sum = own_sum + other_sum;
  T* const out = k.output + at * k.head_dim;
  const T* const add = k.other + at * k.head_dim;
  for (std::int64_t d = lane * N; d < k.head_dim; d += lanes * N) {
    float a[N];
    float b[N];
    load_widened<N>(out + d, a);
    widen_all(load_streaming<T, N>(add + d), b);
#pragma unroll
    for (int i = 0; i < N; ++i) a[i] = (a[i] * own_sum + b[i] * other_sum) / sum;
    store_narrowed<N>(out + d, a);
  }
  if (lane == 0) k.log_sum_exp[at] = largest + logf(sum);
}

template <class T, int N>
Result<void> run_merge(const AttentionMerge<T>& k, cudaStream_t stream) {
  const auto packs = static_cast<std::uint64_t>(ceil_div(k.head_dim, N));
  const auto lanes = static_cast<int>(std::bit_ceil(std::min<std::uint64_t>(packs, kWarp)));
  merge<T, N>
      <<<grid_of(ceil_div(k.rows * k.heads * lanes, kThreads)), kThreads, 0, stream>>>(k, lanes);
  return launched("attention_merge");
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    add(T* __restrict__ output, const T* __restrict__ input, std::int64_t packs) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= packs) return;
  float a[N];
  float b[N];
  load_widened<N>(output + at * N, a);
  widen_all(load_streaming<T, N>(input + at * N), b);
#pragma unroll
  for (int i = 0; i < N; ++i) a[i] += b[i];
  store_narrowed<N>(output + at * N, a);
}

template <class T, int N>
Result<void> run_add(const AddRows<T>& k, cudaStream_t stream) {
  const std::int64_t packs = k.rows * k.cols / N;
  add<T, N><<<grid_of(ceil_div(packs, kThreads)), kThreads, 0, stream>>>(k.output, k.input, packs);
  return launched("add_rows");
}

/// Columns of rows that may be wider, in packs.
template <class Pack>
struct Columns {
  const Pack* data = nullptr;
  std::int64_t row = 0;
  std::int64_t cols = 0;
};

/// output[row] = a[row], b[row]; a thread has one pack.
template <class Pack>
__global__ void __launch_bounds__(kThreads) join(const Columns<Pack> a, const Columns<Pack> b,
                                                 Pack* __restrict__ output, std::int64_t packs) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (at >= packs) return;
  const std::int64_t row = at / (a.cols + b.cols);
  const std::int64_t col = at - row * (a.cols + b.cols);
  output[at] = col < a.cols ? a.data[row * a.row + col] : b.data[row * b.row + col - a.cols];
}

template <class Pack>
Result<void> run_join(const Columns<Pack>& a, const Columns<Pack>& b, Pack* output,
                      std::int64_t rows, cudaStream_t stream) {
  const std::int64_t packs = rows * (a.cols + b.cols);
  if (packs == 0) return {};
  join<<<grid_of(ceil_div(packs, kThreads)), kThreads, 0, stream>>>(a, b, output, packs);
  return launched("rows of keys");
}

/// Packs of 16 bytes where columns, rows and addresses allow them.
template <class T>
Result<void> join_columns(const Columns<T>& a, const Columns<T>& b, T* output, std::int64_t rows,
                          cudaStream_t stream) {
  constexpr std::int64_t kWide = kPack<T>;
  const bool in_packs =
      is_aligned({a.data, b.data, output}, 16) && (a.row | a.cols | b.row | b.cols) % kWide == 0;
  if (!in_packs) return run_join(a, b, output, rows, stream);
  const auto packed = [](const Columns<T>& of) {
    return Columns<uint4>{.data = reinterpret_cast<const uint4*>(of.data),
                          .row = of.row / kWide,
                          .cols = of.cols / kWide};
  };
  return run_join(packed(a), packed(b), reinterpret_cast<uint4*>(output), rows, stream);
}

}  // namespace

template <class T>
Result<void> attention_merge(const AttentionMerge<T>& k, cudaStream_t stream) {
  if (k.rows == 0) return {};
  if (is_aligned({k.output, k.other}, 16) && k.head_dim % kPack<T> == 0)
    return run_merge<T, kPack<T>>(k, stream);
  return run_merge<T, 1>(k, stream);
}

template <class T>
Result<void> add_rows(const AddRows<T>& k, cudaStream_t stream) {
  if (k.rows * k.cols == 0) return {};
  if (is_aligned({k.output, k.input}, 16) && k.rows * k.cols % kPack<T> == 0)
    return run_add<T, kPack<T>>(k, stream);
  return run_add<T, 1>(k, stream);
}

template <class T>
Result<void> take_keys(const TakeKeys<T>& k, cudaStream_t stream) {
  const auto columns = [&](const Matrix<const T>& of) {
    return Columns<T>{.data = of.data, .row = of.row, .cols = k.columns.key_cols};
  };
  return join_columns(columns(k.key), columns(k.value), k.output, k.columns.rows, stream);
}

template <class T>
Result<void> join_keys(const JoinKeys<T>& k, cudaStream_t stream) {
  const std::int64_t keys = 2 * k.columns.key_cols;
  return join_columns<T>({.data = k.query.data, .row = k.query.row, .cols = k.columns.query_cols},
                         {.data = k.key_value, .row = keys, .cols = keys}, k.output, k.columns.rows,
                         stream);
}

#define MFSDP_INSTANTIATE(T)                                                     \
  template Result<void> attention_merge(const AttentionMerge<T>&, cudaStream_t); \
  template Result<void> add_rows(const AddRows<T>&, cudaStream_t);               \
  template Result<void> take_keys(const TakeKeys<T>&, cudaStream_t);             \
  template Result<void> join_keys(const JoinKeys<T>&, cudaStream_t)
MFSDP_INSTANTIATE(Bf16);
MFSDP_INSTANTIATE(Fp16);
MFSDP_INSTANTIATE(float);
#undef MFSDP_INSTANTIATE

}  // namespace mfsdp::cuda
