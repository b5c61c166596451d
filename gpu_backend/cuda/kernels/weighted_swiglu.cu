#include "gpu_backend/cuda/kernels/experts.hpp"
#include "gpu_backend/cuda/kernels/swiglu.cuh"

namespace mfsdp::cuda {
namespace {

using kernels::SwigluClamp;
using kernels::WeightedSwigluBackward;
using kernels::WeightedSwigluForward;

constexpr int kThreads = 256;

int threads_of(std::int64_t packs) {
  return static_cast<int>(std::min<std::int64_t>(ceil_div(packs, kWarp) * kWarp, kThreads));
}

/// The result is rounded once, later, here and where backward computes it again.
__device__ float weighted_product(float gate, float sigmoid_of_gate, float up, float weight) {
  return __fmul_rn(gated_product(gate, sigmoid_of_gate, up), weight);
}

/// Gates and ups of N columns in a row: side by side, or alternating.
template <class T, int N, bool kInTurn>
struct Gates {
  float gate[N];
  float up[N];

  static __device__ T* place(T* row, std::int64_t col) { return row + (kInTurn ? 2 : 1) * col; }

  __device__ Gates(const T* row, std::int64_t cols, std::int64_t col) {
    const T* const from = row + (kInTurn ? 2 : 1) * col;
    if constexpr (!kInTurn) {
      load_widened<N>(from, gate);
      load_widened<N>(from + cols, up);
    } else {
      float both[2][N];
      load_widened<N>(from, both[0]);
      load_widened<N>(from + N, both[1]);
#pragma unroll
      for (int i = 0; i < N; ++i) {
        gate[i] = both[2 * i / N][2 * i % N];
        up[i] = both[(2 * i + 1) / N][(2 * i + 1) % N];
      }
    }
  }

  __device__ void store(T* row, std::int64_t cols, std::int64_t col) const {
    T* const to = place(row, col);
    if constexpr (!kInTurn) {
      store_narrowed<N>(to, gate);
      store_narrowed<N>(to + cols, up);
    } else {
      float both[2][N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        both[2 * i / N][2 * i % N] = gate[i];
        both[(2 * i + 1) / N][(2 * i + 1) % N] = up[i];
      }
      store_narrowed<N>(to, both[0]);
      store_narrowed<N>(to + N, both[1]);
    }
  }
};

/// The clamped factors, and whether each still has a gradient. NaN stays NaN.
struct Clamped {
  float gate;
  float up;
  bool gate_moves = true;
  bool up_moves = true;

  __device__ Clamped(float gate_number, float up_number, const SwigluClamp<float>& clamp)
      : gate(gate_number), up(up_number) {
    if (clamp.limit == 0) return;
    gate_moves = !(gate > clamp.limit);
    up_moves = !(fabsf(up) > clamp.limit);
    if (!gate_moves) gate = clamp.limit;
    if (!up_moves) up = copysignf(clamp.limit, up);
    up += 1;
  }
};

/// One block per row; blocks after the last expert's rows have no work.
template <class T, int N, bool kInTurn>
__global__ void __launch_bounds__(kThreads) forward(const WeightedSwigluForward<T> k) {
  const std::int64_t row = blockIdx.x;
  if (k.ends != nullptr && row >= k.ends[k.experts - 1]) return;
  const float weight = k.row_weights == nullptr ? 1.0F : k.row_weights[row];
  for (std::int64_t col = std::int64_t{threadIdx.x} * N; col < k.cols; col += blockDim.x * N) {
    const Gates<T, N, kInTurn> from(k.gate_up + row * 2 * k.cols, k.cols, col);
    float made[N];
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Clamped of(from.gate[i], from.up[i], k.clamp);
      made[i] = weighted_product(of.gate, sigmoid<T>(k.clamp.alpha * of.gate), of.up, weight);
    }
    store_narrowed<N>(k.product + row * k.cols + col, made);
  }
}

template <class T, int N, bool kInTurn>
__global__ void __launch_bounds__(kThreads) backward(const WeightedSwigluBackward<T> k) {
  __shared__ float sums[kWarp];
  const std::int64_t row = blockIdx.x;
  if (k.ends != nullptr && row >= k.ends[k.experts - 1]) return;
  const float weight = k.row_weights == nullptr ? 1.0F : k.row_weights[row];
  T* const gates = k.gate_up + row * 2 * k.cols;
  float share = 0;
  for (std::int64_t col = std::int64_t{threadIdx.x} * N; col < k.cols; col += blockDim.x * N) {
    Gates<T, N, kInTurn> both(gates, k.cols, col);
    float d[N];
    load_widened<N>(k.d_product + row * k.cols + col, d);
#pragma unroll
    for (int i = 0; i < N; ++i) {
      const Clamped of(both.gate[i], both.up[i], k.clamp);
      const float s = sigmoid<T>(k.clamp.alpha * of.gate);
      const float again = weighted_product(of.gate, s, of.up, weight);
      const float activated = of.gate * s;
      const float d_weighted = d[i] * weight;
      share += d[i] * (activated * of.up);
      both.gate[i] =
          of.gate_moves ? d_weighted * of.up * (s + k.clamp.alpha * activated * (1 - s)) : 0.0F;
      both.up[i] = of.up_moves ? d_weighted * activated : 0.0F;
      d[i] = again;
    }
    both.store(gates, k.cols, col);
    if (k.product != nullptr) store_narrowed<N>(k.product + row * k.cols + col, d);
  }
  if (k.d_row_weights == nullptr) return;
  share = block_sum(share, sums);
  if (threadIdx.x == 0) k.d_row_weights[row] = share;
}

}  // namespace

template <class T>
Result<void> weighted_swiglu_forward(const WeightedSwigluForward<T>& k, cudaStream_t stream) {
  if (k.rows == 0 || k.cols == 0) return {};
  constexpr int N = kPack<T>;
  const bool packs = k.cols % N == 0 && is_aligned({k.gate_up, k.product}, 16);
  const auto run = [&](auto in_turn) {
    if (packs)
      forward<T, N, in_turn.value><<<grid_of(k.rows), threads_of(k.cols / N), 0, stream>>>(k);
    else
      forward<T, 1, in_turn.value><<<grid_of(k.rows), threads_of(k.cols), 0, stream>>>(k);
  };
  if (k.interleaved)
    run(std::true_type{});
  else
    run(std::false_type{});
  return launched("weighted_swiglu_forward");
}

template <class T>
Result<void> weighted_swiglu_backward(const WeightedSwigluBackward<T>& k, cudaStream_t stream) {
  if (k.rows == 0 || k.cols == 0) return {};
  constexpr int N = kPack<T>;
  const bool packs = k.cols % N == 0 && is_aligned({k.gate_up, k.d_product, k.product}, 16);
  const auto run = [&](auto in_turn) {
    if (packs)
      backward<T, N, in_turn.value><<<grid_of(k.rows), threads_of(k.cols / N), 0, stream>>>(k);
    else
      backward<T, 1, in_turn.value><<<grid_of(k.rows), threads_of(k.cols), 0, stream>>>(k);
  };
  if (k.interleaved)
    run(std::true_type{});
  else
    run(std::false_type{});
  return launched("weighted_swiglu_backward");
}

template Result<void> weighted_swiglu_forward(const WeightedSwigluForward<Bf16>&, cudaStream_t);
template Result<void> weighted_swiglu_forward(const WeightedSwigluForward<Fp16>&, cudaStream_t);
template Result<void> weighted_swiglu_forward(const WeightedSwigluForward<float>&, cudaStream_t);
template Result<void> weighted_swiglu_backward(const WeightedSwigluBackward<Bf16>&, cudaStream_t);
template Result<void> weighted_swiglu_backward(const WeightedSwigluBackward<Fp16>&, cudaStream_t);
template Result<void> weighted_swiglu_backward(const WeightedSwigluBackward<float>&, cudaStream_t);

}  // namespace mfsdp::cuda
