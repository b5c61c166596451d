#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/tokens.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::EmbeddingBackward;
using kernels::EmbeddingForward;
using kernels::TokenCopy;
using kernels::TokenPlace;

constexpr int kThreads = 256;

template <class T, int N>
__global__ void copy_rows(const EmbeddingForward<T> k) {
  const std::int32_t token = k.tokens[blockIdx.x];
  const bool known = token >= 0 && token < k.vocab;
  const T* const from = k.table + (known ? token * k.cols : 0);
  T* const to = k.output + blockIdx.x * k.cols;
  float nan[N];
#pragma unroll
  for (int i = 0; i < N; ++i) nan[i] = __int_as_float(0x7fffffff);
  for (std::int64_t col = threadIdx.x * N; col < k.cols; col += kThreads * N)
    store<N>(to + col, known ? load<T, N>(from + col) : narrow_all<T, N>(nan));
}

constexpr int kOrdered = 4;  ///< tokens whose place in the order a warp finds

/// order[number of tokens before i, in the order of (token, place)] = (token i, i).
__global__ void put_in_order(const std::int32_t* tokens, int count, TokenPlace* order) {
  const int warp = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / kWarp);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int first = warp * kOrdered;
  if (first >= count) return;
  std::int32_t own[kOrdered];
  int before[kOrdered] = {};
#pragma unroll
  for (int i = 0; i < kOrdered; ++i) own[i] = first + i < count ? tokens[first + i] : 0;
#pragma unroll 4
  for (int j = lane; j < count; j += kWarp) {
    const std::int32_t other = tokens[j];
#pragma unroll
    for (int i = 0; i < kOrdered; ++i)
      before[i] += other < own[i] || (other == own[i] && j < first + i) ? 1 : 0;
  }
#pragma unroll
  for (int i = 0; i < kOrdered; ++i) {
    const int rank = warp_sum(before[i]);
    if (lane == i && first + i < count) order[rank] = {.token = own[i], .place = first + i};
  }
}

constexpr int kRowThreads = 128;  ///< few, so that a frequent token's rows go to several blocks
constexpr int kAhead = 8;         ///< rows that are on their way at once

/// The block of the first entry of a token in the order adds up the token's rows.
template <class T, class G, int N>
__global__ void __launch_bounds__(kRowThreads) sum_rows(const EmbeddingBackward<T, G> k) {
  const auto count = static_cast<int>(k.order.size());
  const TokenPlace* const order = k.order.data();
  auto at = static_cast<int>(blockIdx.x);
  const std::int32_t token = order[at].token;
  if (token < 0 || token >= k.vocab || (at > 0 && order[at - 1].token == token)) return;
  const int col = static_cast<int>(blockIdx.y * kRowThreads + threadIdx.x) * N;
  if (col >= k.cols) return;
  G* const out = k.gradient + token * k.cols + col;
  float sum[N] = {};
  Pack<G, N> before;
  if (k.adds) before = load<G, N>(out);
  const auto row_at = [&](int entry) {
    return load<T, N>(k.d_output + order[entry].place * k.cols + col);
  };
  const auto add = [&](const auto& row) {
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += element(row, i);
  };
  for (; at + kAhead <= count && order[at + kAhead - 1].token == token; at += kAhead) {
    Pack<T, N> rows[kAhead];
#pragma unroll
    for (int r = 0; r < kAhead; ++r) rows[r] = row_at(at + r);
#pragma unroll
    for (int r = 0; r < kAhead; ++r) add(rows[r]);
  }
  for (; at < count && order[at].token == token; ++at) add(row_at(at));
  if (k.adds) add(before);
  store_narrowed<N>(out, sum);
}

}  // namespace

Result<void> token_copy(const TokenCopy& k, cudaStream_t stream) {
  return check(cudaMemcpyAsync(k.to, k.from, static_cast<std::size_t>(k.count) * sizeof(*k.to),
                               cudaMemcpyDeviceToDevice, stream),
               "cudaMemcpyAsync", "token_copy");
}

template <class T>
Result<void> embedding_forward(const EmbeddingForward<T>& k, cudaStream_t stream) {
  const auto rows = static_cast<std::int64_t>(k.tokens.size());
  if (rows == 0 || k.cols == 0) return {};
  constexpr int N = kPack<T>;
  if (k.cols % N == 0 && is_aligned({k.table, k.output}, 16))
    copy_rows<T, N><<<grid_of(rows), kThreads, 0, stream>>>(k);
  else
    copy_rows<T, 1><<<grid_of(rows), kThreads, 0, stream>>>(k);
  return launched("embedding_forward");
}

template <class T, class G>
Result<void> embedding_backward(const EmbeddingBackward<T, G>& k, cudaStream_t stream) {
  if (k.pieces.grid) return no_exact_form("embedding_backward");
  if (!k.adds)
    MFSDP_TRY(check(cudaMemsetAsync(k.gradient, 0,
                                    static_cast<std::size_t>(k.vocab * k.cols) * sizeof(G), stream),
                    "cudaMemsetAsync", "embedding_backward"));
  const auto count = static_cast<std::int64_t>(k.tokens.size());
  if (count == 0 || k.cols == 0) return {};
  put_in_order<<<grid_of(ceil_div(ceil_div(count, kOrdered), kThreads / kWarp)), kThreads, 0,
                 stream>>>(k.tokens.data(), static_cast<int>(count), k.order.data());
  MFSDP_TRY(launched("embedding_backward"));
  const auto launch = [&](auto n) {
    const std::int64_t blocks = ceil_div(ceil_div(k.cols, n()), kRowThreads);
    sum_rows<T, G, n()><<<grid_of(count, blocks), kRowThreads, 0, stream>>>(k);
  };
  constexpr int N = kPack<T>;
  if (k.cols % N == 0 && is_aligned({k.d_output, k.gradient}, 16))
    launch(std::integral_constant<int, N>{});
  else
    launch(std::integral_constant<int, 1>{});
  return launched("embedding_backward");
}

template Result<void> embedding_forward(const EmbeddingForward<Bf16>&, cudaStream_t);
template Result<void> embedding_forward(const EmbeddingForward<float>&, cudaStream_t);
template Result<void> embedding_backward(const EmbeddingBackward<Bf16, Bf16>&, cudaStream_t);
template Result<void> embedding_backward(const EmbeddingBackward<Bf16, float>&, cudaStream_t);
template Result<void> embedding_backward(const EmbeddingBackward<float, Bf16>&, cudaStream_t);
template Result<void> embedding_backward(const EmbeddingBackward<float, float>&, cudaStream_t);

}  // namespace mfsdp::cuda
