#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/sinks.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::SinkBackward;
using kernels::SinkForward;

constexpr int kThreads = 256;
constexpr int kHeads = kThreads / kWarp;  // of a block: a warp each

/// A warp has one head of a token. It adds the sink to the log-sum-exp, and scales the output by
/// the share of the tokens.
template <class T>
__global__ void __launch_bounds__(kThreads) forward(const SinkForward<T> k) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kHeads + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (at >= k.rows * k.heads) return;
  const float sink = widened(k.sinks[at % k.heads]);
  const float before = k.log_sum_exp[at];
  const float largest = fmaxf(sink, before);
  const float sum = largest + logf(expf(sink - largest) + expf(before - largest));
  const float share = expf(before - sum);
  T* const out = k.output + at * k.head_dim;
  for (std::int64_t d = lane; d < k.head_dim; d += kWarp)
    out[d] = narrowed<T>(widened(out[d]) * share);
  __syncwarp();  // all lanes have read it
  if (lane == 0) k.log_sum_exp[at] = sum;
}

template <class T>
__global__ void __launch_bounds__(kThreads) backward(const SinkBackward<T> k) {
  const std::int64_t at = std::int64_t{blockIdx.x} * kHeads + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (at >= k.rows * k.heads) return;
  float sum = 0;
  for (std::int64_t d = lane; d < k.head_dim; d += kWarp)
    sum += widened(k.d_output[at * k.head_dim + d]) * widened(k.output[at * k.head_dim + d]);
  sum = warp_sum(sum);
  const float share = expf(widened(k.sinks[at % k.heads]) - k.log_sum_exp[at]);
  if (lane == 0) k.d_sinks[at] = narrowed<T>(-share * sum);
}

}  // namespace

template <class T>
Result<void> sink_forward(const SinkForward<T>& k, cudaStream_t stream) {
  if (k.rows == 0) return {};
  forward<<<grid_of(ceil_div(k.rows * k.heads, kHeads)), kThreads, 0, stream>>>(k);
  return launched("sink_forward");
}

template <class T>
Result<void> sink_backward(const SinkBackward<T>& k, cudaStream_t stream) {
  if (k.rows == 0) return {};
  backward<<<grid_of(ceil_div(k.rows * k.heads, kHeads)), kThreads, 0, stream>>>(k);
  return launched("sink_backward");
}

#define MFSDP_INSTANTIATE(T)                                               \
  template Result<void> sink_forward(const SinkForward<T>&, cudaStream_t); \
  template Result<void> sink_backward(const SinkBackward<T>&, cudaStream_t)
MFSDP_INSTANTIATE(Bf16);
MFSDP_INSTANTIATE(Fp16);
MFSDP_INSTANTIATE(float);
#undef MFSDP_INSTANTIATE

}  // namespace mfsdp::cuda
