#include "gpu_backend/cuda/kernels/experts.hpp"
#include "gpu_backend/cuda/kernels/swiglu.cuh"

namespace mfsdp::cuda {
namespace {

using kernels::WeightedSwigluBackward;
using kernels::WeightedSwigluForward;

constexpr int kThreads = 256;

int threads_of(std::int64_t packs) {
  return static_cast<int>(std::min<std::int64_t>(ceil_div(packs, kWarp) * kWarp, kThreads));
}

/// The one rounding follows, here and where backward makes the product again.
__device__ float weighted_product(float gate, float sigmoid_of_gate, float up, float weight) {
  return __fmul_rn(gated_product(gate, sigmoid_of_gate, up), weight);
}

/// A block a row; those behind the last expert's are nobody's.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) forward(const WeightedSwigluForward<T> k) {
  const std::int64_t row = blockIdx.x;
  if (row >= k.ends[k.experts - 1]) return;
  const float weight = k.row_weights[row];
  for (std::int64_t col = std::int64_t{threadIdx.x} * N; col < k.cols; col += blockDim.x * N) {
    float gate[N];
    float up[N];
    const T* const from = k.gate_up + row * 2 * k.cols + col;
    load_widened<N>(from, gate);
    load_widened<N>(from + k.cols, up);
#pragma unroll
    for (int i = 0; i < N; ++i)
      up[i] = weighted_product(gate[i], sigmoid<T>(gate[i]), up[i], weight);
    store_narrowed<N>(k.product + row * k.cols + col, up);
  }
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads) backward(const WeightedSwigluBackward<T> k) {
  __shared__ float sums[kWarp];
  const std::int64_t row = blockIdx.x;
  if (row >= k.ends[k.experts - 1]) return;
  const float weight = k.row_weights[row];
  float share = 0;
  for (std::int64_t col = std::int64_t{threadIdx.x} * N; col < k.cols; col += blockDim.x * N) {
    float gate[N];
    float up[N];
    float d[N];
    T* const gates = k.gate_up + row * 2 * k.cols + col;
    load_widened<N>(gates, gate);
    load_widened<N>(gates + k.cols, up);
    load_widened<N>(k.d_product + row * k.cols + col, d);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const float s = sigmoid<T>(gate[i]);
      const float again = weighted_product(gate[i], s, up[i], weight);
      const float activated = gate[i] * s;
      const float d_weighted = d[i] * weight;
      share += d[i] * (activated * up[i]);
      gate[i] = d_weighted * up[i] * (s + activated * (1 - s));
      up[i] = d_weighted * activated;
      d[i] = again;
    }
    store_narrowed<N>(gates, gate);
    store_narrowed<N>(gates + k.cols, up);
    if (k.product != nullptr) store_narrowed<N>(k.product + row * k.cols + col, d);
  }
  share = block_sum(share, sums);
  if (threadIdx.x == 0) k.d_row_weights[row] = share;
}

}  // namespace

template <class T>
Result<void> weighted_swiglu_forward(const WeightedSwigluForward<T>& k, cudaStream_t stream) {
  if (k.rows == 0 || k.cols == 0) return {};
  constexpr int N = kPack<T>;
  if (k.cols % N == 0 && is_aligned({k.gate_up, k.product}, 16))
    forward<T, N><<<grid_of(k.rows), threads_of(k.cols / N), 0, stream>>>(k);
  else
    forward<T, 1><<<grid_of(k.rows), threads_of(k.cols), 0, stream>>>(k);
  return launched("weighted_swiglu_forward");
}

template <class T>
Result<void> weighted_swiglu_backward(const WeightedSwigluBackward<T>& k, cudaStream_t stream) {
  if (k.rows == 0 || k.cols == 0) return {};
  constexpr int N = kPack<T>;
  if (k.cols % N == 0 && is_aligned({k.gate_up, k.d_product, k.product}, 16))
    backward<T, N><<<grid_of(k.rows), threads_of(k.cols / N), 0, stream>>>(k);
  else
    backward<T, 1><<<grid_of(k.rows), threads_of(k.cols), 0, stream>>>(k);
  return launched("weighted_swiglu_backward");
}

template Result<void> weighted_swiglu_forward(const WeightedSwigluForward<Bf16>&, cudaStream_t);
template Result<void> weighted_swiglu_forward(const WeightedSwigluForward<Fp16>&, cudaStream_t);
template Result<void> weighted_swiglu_forward(const WeightedSwigluForward<float>&, cudaStream_t);
template Result<void> weighted_swiglu_backward(const WeightedSwigluBackward<Bf16>&, cudaStream_t);
template Result<void> weighted_swiglu_backward(const WeightedSwigluBackward<Fp16>&, cudaStream_t);
template Result<void> weighted_swiglu_backward(const WeightedSwigluBackward<float>&, cudaStream_t);

}  // namespace mfsdp::cuda
