#include "gpu_backend/cuda/kernels/fp8.cuh"
#include "gpu_backend/cuda/kernels/swiglu.cuh"
#include "gpu_backend/cuda/kernels/swiglu.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::GeluBackward;
using kernels::GeluForward;
using kernels::SwigluBackward;
using kernels::SwigluForward;

constexpr int kThreads = 256;
constexpr std::int64_t kMaxGridRows = 65535;

template <class Gate, class T, int N>
__global__ void forward(const SwigluForward<T> k) {
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  Largest<T> largest;
  for (std::int64_t row = blockIdx.y; row < k.rows && col < k.cols; row += gridDim.y) {
    float gate[N];
    float up[N];
    const T* const from = k.gate_up + row * 2 * k.cols + col;
    load_widened<N>(from, gate);
    load_widened<N>(from + k.cols, up);
#pragma unroll
    for (int i = 0; i < N; ++i) up[i] = gated_product(gate[i], sigmoid<T>(Gate::z(gate[i])), up[i]);
    const auto product = narrow_all<T, N>(up);
    store<N>(k.product + row * k.cols + col, product);
    if (k.amax != nullptr) largest.add(product);
  }
  if (k.amax != nullptr) raise_to(largest.bits(), k.amax);
}

template <class Gate, class T, int N>
__global__ void backward(const SwigluBackward<T> k) {
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) * N;
  Largest<T> largest;
  for (std::int64_t row = blockIdx.y; row < k.rows && col < k.cols; row += gridDim.y) {
    float gate[N];
    float up[N];
    float d[N];
    T* const gates = k.gate_up + row * 2 * k.cols + col;
    load_widened<N>(gates, gate);
    load_widened<N>(gates + k.cols, up);
    load_widened<N>(k.d_product + row * k.cols + col, d);
#pragma unroll
    for (int i = 0; i < N; ++i) d[i] = gated_gradient<Gate, T>(gate[i], up[i], d[i]);
    const auto d_gate = narrow_all<T, N>(gate);
    const auto d_up = narrow_all<T, N>(up);
    store<N>(gates, d_gate);
    store<N>(gates + k.cols, d_up);
    if (k.product != nullptr) store_narrowed<N>(k.product + row * k.cols + col, d);
    if (k.amax == nullptr) continue;
    largest.add(d_gate);
    largest.add(d_up);
  }
  if (k.amax != nullptr) raise_to(largest.bits(), k.amax);
}

// ---- without a gate: consecutive elements ------------------------------------------------------

template <class T, int N>
__global__ void gelu(std::int64_t packs, const T* input, T* product) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= packs) return;
  float x[N];
  load_widened<N>(input + at * N, x);
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = __fmul_rn(x[i], sigmoid<T>(GeluTanh::z(x[i])));
  store_narrowed<N>(product + at * N, x);
}

template <class T, int N>
__global__ void gelu_gradient(std::int64_t packs, T* input, const T* d_product, T* product) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= packs) return;
  float x[N];
  float d[N];
  load_widened<N>(input + at * N, x);
  load_widened<N>(d_product + at * N, d);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float s = sigmoid<T>(GeluTanh::z(x[i]));
    const float again = __fmul_rn(x[i], s);
    x[i] = d[i] * (s + again * (1 - s) * GeluTanh::slope(x[i]));
    d[i] = again;
  }
  store_narrowed<N>(input + at * N, x);
  if (product != nullptr) store_narrowed<N>(product + at * N, d);
}

/// Blocks that raise an amax take several rows, because each reads and perhaps changes one address.
constexpr std::int64_t kAmaxRows = 4;

dim3 grid_of_rows(std::int64_t rows, std::int64_t packs, bool takes_amax) {
  return grid_of(ceil_div(packs, kThreads),
                 std::min(takes_amax ? ceil_div(rows, kAmaxRows) : rows, kMaxGridRows));
}

template <class Gate, class T>
Result<void> gated_forward(const SwigluForward<T>& k, cudaStream_t stream, const char* kernel) {
  MFSDP_TRY(begin_amax(k.amax, kernel, stream));
  if (k.rows == 0 || k.cols == 0) return {};
  constexpr int N = kPack<T>;
  if (k.cols % N == 0 && is_aligned({k.gate_up, k.product}, 16))
    forward<Gate, T, N>
        <<<grid_of_rows(k.rows, k.cols / N, k.amax != nullptr), kThreads, 0, stream>>>(k);
  else
    forward<Gate, T, 1>
        <<<grid_of_rows(k.rows, k.cols, k.amax != nullptr), kThreads, 0, stream>>>(k);
  return launched(kernel);
}

template <class Gate, class T>
Result<void> gated_backward(const SwigluBackward<T>& k, cudaStream_t stream, const char* kernel) {
  MFSDP_TRY(begin_amax(k.amax, kernel, stream));
  if (k.rows == 0 || k.cols == 0) return {};
  constexpr int N = kPack<T>;
  if (k.cols % N == 0 && is_aligned({k.gate_up, k.d_product, k.product}, 16)) {
    prefer_cache<backward<Gate, T, N>>();
    backward<Gate, T, N>
        <<<grid_of_rows(k.rows, k.cols / N, k.amax != nullptr), kThreads, 0, stream>>>(k);
  } else {
    backward<Gate, T, 1>
        <<<grid_of_rows(k.rows, k.cols, k.amax != nullptr), kThreads, 0, stream>>>(k);
  }
  return launched(kernel);
}

}  // namespace

template <class T>
Result<void> swiglu_forward(const SwigluForward<T>& k, cudaStream_t stream) {
  return gated_forward<Silu>(k, stream, "swiglu_forward");
}
template <class T>
Result<void> swiglu_backward(const SwigluBackward<T>& k, cudaStream_t stream) {
  return gated_backward<Silu>(k, stream, "swiglu_backward");
}
template <class T>
Result<void> geglu_forward(const SwigluForward<T>& k, cudaStream_t stream) {
  return gated_forward<GeluTanh>(k, stream, "geglu_forward");
}
template <class T>
Result<void> geglu_backward(const SwigluBackward<T>& k, cudaStream_t stream) {
  return gated_backward<GeluTanh>(k, stream, "geglu_backward");
}

template <class T>
Result<void> gelu_forward(const GeluForward<T>& k, cudaStream_t stream) {
  const std::int64_t count = k.rows * k.cols;
  if (count == 0) return {};
  constexpr int N = kPack<T>;
  if (count % N == 0 && is_aligned({k.input, k.product}, 16))
    gelu<T, N><<<grid_of(ceil_div(count / N, kThreads)), kThreads, 0, stream>>>(count / N, k.input,
                                                                                k.product);
  else
    gelu<T, 1>
        <<<grid_of(ceil_div(count, kThreads)), kThreads, 0, stream>>>(count, k.input, k.product);
  return launched("gelu_forward");
}
template <class T>
Result<void> gelu_backward(const GeluBackward<T>& k, cudaStream_t stream) {
  const std::int64_t count = k.rows * k.cols;
  if (count == 0) return {};
  constexpr int N = kPack<T>;
  if (count % N == 0 && is_aligned({k.input, k.d_product, k.product}, 16))
    gelu_gradient<T, N><<<grid_of(ceil_div(count / N, kThreads)), kThreads, 0, stream>>>(
        count / N, k.input, k.d_product, k.product);
  else
    gelu_gradient<T, 1><<<grid_of(ceil_div(count, kThreads)), kThreads, 0, stream>>>(
        count, k.input, k.d_product, k.product);
  return launched("gelu_backward");
}

template Result<void> gelu_forward(const GeluForward<Bf16>&, cudaStream_t);
template Result<void> gelu_forward(const GeluForward<Fp16>&, cudaStream_t);
template Result<void> gelu_forward(const GeluForward<float>&, cudaStream_t);
template Result<void> gelu_backward(const GeluBackward<Bf16>&, cudaStream_t);
template Result<void> gelu_backward(const GeluBackward<Fp16>&, cudaStream_t);
template Result<void> gelu_backward(const GeluBackward<float>&, cudaStream_t);
template Result<void> swiglu_forward(const SwigluForward<Bf16>&, cudaStream_t);
template Result<void> swiglu_forward(const SwigluForward<Fp16>&, cudaStream_t);
template Result<void> swiglu_forward(const SwigluForward<float>&, cudaStream_t);
template Result<void> swiglu_backward(const SwigluBackward<Bf16>&, cudaStream_t);
template Result<void> swiglu_backward(const SwigluBackward<Fp16>&, cudaStream_t);
template Result<void> swiglu_backward(const SwigluBackward<float>&, cudaStream_t);
template Result<void> geglu_forward(const SwigluForward<Bf16>&, cudaStream_t);
template Result<void> geglu_forward(const SwigluForward<Fp16>&, cudaStream_t);
template Result<void> geglu_forward(const SwigluForward<float>&, cudaStream_t);
template Result<void> geglu_backward(const SwigluBackward<Bf16>&, cudaStream_t);
template Result<void> geglu_backward(const SwigluBackward<Fp16>&, cudaStream_t);
template Result<void> geglu_backward(const SwigluBackward<float>&, cudaStream_t);

}  // namespace mfsdp::cuda
