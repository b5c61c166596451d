#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/swiglu.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::SwigluBackward;
using kernels::SwigluForward;

constexpr int kThreads = 256;
constexpr std::int64_t kMaxGridRows = 65535;

/// bf16 keeps 8 bits of a result: the fast exponential is exact enough there.
template <class T>
__device__ float sigmoid(float x) {
  if constexpr (std::is_same_v<T, float>)
    return 1 / (1 + expf(-x));
  else
    return __fdividef(1, 1 + __expf(-x));
}

/// The one rounding of a product follows: backward makes the very same bits again.
__device__ float product(float gate, float sigmoid_of_gate, float up) {
  return __fmul_rn(__fmul_rn(gate, sigmoid_of_gate), up);
}

template <class T, int N>
__global__ void forward(const SwigluForward<T> k) {
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (col >= k.cols) return;
  for (std::int64_t row = blockIdx.y; row < k.rows; row += gridDim.y) {
    float gate[N];
    float up[N];
    const T* const from = k.gate_up + row * 2 * k.cols + col;
    load_widened<N>(from, gate);
    load_widened<N>(from + k.cols, up);
#pragma unroll
    for (int i = 0; i < N; ++i) up[i] = product(gate[i], sigmoid<T>(gate[i]), up[i]);
    store_narrowed<N>(k.product + row * k.cols + col, up);
  }
}

template <class T, int N>
__global__ void backward(const SwigluBackward<T> k) {
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  if (col >= k.cols) return;
  for (std::int64_t row = blockIdx.y; row < k.rows; row += gridDim.y) {
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
      const float again = product(gate[i], s, up[i]);
      const float silu = gate[i] * s;
      gate[i] = d[i] * up[i] * (s + silu * (1 - s));
      up[i] = d[i] * silu;
      d[i] = again;
    }
    store_narrowed<N>(gates, gate);
    store_narrowed<N>(gates + k.cols, up);
    if (k.product != nullptr) store_narrowed<N>(k.product + row * k.cols + col, d);
  }
}

dim3 grid_of_rows(std::int64_t rows, std::int64_t packs) {
  return grid_of(ceil_div(packs, kThreads), std::min(rows, kMaxGridRows));
}

}  // namespace

template <class T>
Result<void> swiglu_forward(const SwigluForward<T>& k, cudaStream_t stream) {
  if (k.rows == 0 || k.cols == 0) return {};
  constexpr int N = kPack<T>;
  if (k.cols % N == 0 && is_aligned({k.gate_up, k.product}, 16))
    forward<T, N><<<grid_of_rows(k.rows, k.cols / N), kThreads, 0, stream>>>(k);
  else
    forward<T, 1><<<grid_of_rows(k.rows, k.cols), kThreads, 0, stream>>>(k);
  return launched("swiglu_forward");
}

template <class T>
Result<void> swiglu_backward(const SwigluBackward<T>& k, cudaStream_t stream) {
  if (k.rows == 0 || k.cols == 0) return {};
  constexpr int N = kPack<T>;
  if (k.cols % N == 0 && is_aligned({k.gate_up, k.d_product, k.product}, 16))
    backward<T, N><<<grid_of_rows(k.rows, k.cols / N), kThreads, 0, stream>>>(k);
  else
    backward<T, 1><<<grid_of_rows(k.rows, k.cols), kThreads, 0, stream>>>(k);
  return launched("swiglu_backward");
}

template Result<void> swiglu_forward(const SwigluForward<Bf16>&, cudaStream_t);
template Result<void> swiglu_forward(const SwigluForward<float>&, cudaStream_t);
template Result<void> swiglu_backward(const SwigluBackward<Bf16>&, cudaStream_t);
template Result<void> swiglu_backward(const SwigluBackward<float>&, cudaStream_t);

}  // namespace mfsdp::cuda
