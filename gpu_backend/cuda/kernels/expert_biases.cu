// Biases of experts and of sums of ranks' terms, and the sigmoid of one number per row.
#include "gpu_backend/cuda/kernels/exact_sums.cuh"
#include "gpu_backend/cuda/kernels/experts.hpp"
#include "gpu_backend/cuda/kernels/swiglu.cuh"

namespace mfsdp::cuda {
namespace {

using kernels::AddBias;
using kernels::ExpertBiasDots;
using kernels::ExpertBiasForward;
using kernels::ExpertBiasGradient;
using kernels::SigmoidBackward;
using kernels::SigmoidForward;

constexpr int kThreads = 256;

/// The expert of a row: the first whose rows end after it.
__device__ std::int64_t expert_of(const std::int32_t* ends, std::int64_t experts,
                                  std::int64_t row) {
  std::int64_t first = 0;
  std::int64_t last = experts - 1;
  while (first < last) {
    const std::int64_t middle = (first + last) / 2;
    if (ends[middle] > row)
      last = middle;
    else
      first = middle + 1;
  }
  return first;
}

/// One block per row; blocks after the last expert's rows have no work. N: elements of a load.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) add_bias_of_expert(const ExpertBiasForward<T> k) {
  const std::int64_t row = blockIdx.x;
  if (row >= k.ends[k.experts - 1]) return;
  const float weight = k.row_weights == nullptr ? 1.0F : k.row_weights[row];
  const T* const bias = k.bias + expert_of(k.ends, k.experts, row) * k.cols;
  T* const out = k.output + row * k.cols;
  for (std::int64_t c = threadIdx.x * N; c < k.cols; c += kThreads * N) {
    float sum[N];
    float of_expert[N];
    load_widened<N>(out + c, sum);
    load_widened<N>(bias + c, of_expert);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] = __fadd_rn(sum[i], __fmul_rn(of_expert[i], weight));
    store_narrowed<N>(out + c, sum);
  }
}

/// One block per row.
template <class T, int N>
__global__ void __launch_bounds__(kThreads) add_bias_to_rows(const AddBias<T> k) {
  T* const out = k.output + std::int64_t{blockIdx.x} * k.cols;
  for (std::int64_t c = threadIdx.x * N; c < k.cols; c += kThreads * N) {
    float sum[N];
    float bias[N];
    load_widened<N>(out + c, sum);
    load_widened<N>(k.bias + c, bias);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += bias[i];
    store_narrowed<N>(out + c, sum);
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads) dots(const ExpertBiasDots<T> k) {
  __shared__ float sums[kWarp];
  const std::int64_t row = blockIdx.x;
  if (row >= k.ends[k.experts - 1]) return;
  const T* const bias = k.bias + expert_of(k.ends, k.experts, row) * k.cols;
  const T* const d_output = k.d_output + row * k.cols;
  float sum = 0;
  for (std::int64_t c = threadIdx.x; c < k.cols; c += kThreads)
    sum += widened(d_output[c]) * widened(bias[c]);
  sum = block_sum(sum, sums);
  if (threadIdx.x == 0) k.d_row_weights[row] += sum;
}

struct Chain {
  __device__ float operator()(float sum, float part) const { return sum + part; }
};
struct Rounded {
  GridSteps grid;
  __device__ float operator()(float sum, float part) const { return grid.added(sum, part); }
};

/// Each thread has a column of an expert, and adds up its rows in order. `FromOut`: the sum starts
/// from the previous output if the call adds.
template <bool FromOut, class T, class G, class Add>
__global__ void __launch_bounds__(kThreads)
    column_of_expert(const ExpertBiasGradient<T, G> k, const Add add) {
  const std::int64_t expert = blockIdx.y;
  const std::int64_t col = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (col >= k.cols) return;
  const std::int64_t begin = expert == 0 ? 0 : k.ends[expert - 1];
  const std::int64_t end = k.ends[expert];
  G& out = k.bias_grad[expert * k.cols + col];
  float sum = FromOut && k.adds ? widened(out) : 0.0F;
  for (std::int64_t row = begin; row < end; ++row) {
    const float weight = k.row_weights == nullptr ? 1.0F : k.row_weights[row];
    sum = add(sum, __fmul_rn(widened(k.d_output[row * k.cols + col]), weight));
  }
  out = narrowed<G>(!FromOut && k.adds ? widened(out) + sum : sum);
}

template <class T>
__global__ void __launch_bounds__(kThreads) make_sigmoid(const SigmoidForward<T> k) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row < k.rows) k.output[row] = sigmoid<float>(widened(k.input[row]));
}

template <class T>
__global__ void __launch_bounds__(kThreads) sigmoid_gradient(const SigmoidBackward<T> k) {
  const std::int64_t row = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= k.rows) return;
  const float made = k.output[row];
  k.d_input[row] = narrowed<T>(k.d_output[row] * made * (1 - made));
}

}  // namespace

template <class T>
Result<void> sigmoid_forward(const SigmoidForward<T>& k, cudaStream_t stream) {
  if (k.rows == 0) return {};
  make_sigmoid<<<grid_of(ceil_div(k.rows, kThreads)), kThreads, 0, stream>>>(k);
  return launched("sigmoid_forward");
}

template <class T>
Result<void> sigmoid_backward(const SigmoidBackward<T>& k, cudaStream_t stream) {
  if (k.rows == 0) return {};
  sigmoid_gradient<<<grid_of(ceil_div(k.rows, kThreads)), kThreads, 0, stream>>>(k);
  return launched("sigmoid_backward");
}

template <class T>
Result<void> add_bias(const AddBias<T>& k, cudaStream_t stream) {
  if (k.rows == 0 || k.cols == 0) return {};
  constexpr int N = kPack<T>;
  if (k.cols % N == 0 && is_aligned({k.output, k.bias}, 16))
    add_bias_to_rows<T, N><<<grid_of(k.rows), kThreads, 0, stream>>>(k);
  else
    add_bias_to_rows<T, 1><<<grid_of(k.rows), kThreads, 0, stream>>>(k);
  return launched("add_bias");
}

template <class T>
Result<void> expert_bias_forward(const ExpertBiasForward<T>& k, cudaStream_t stream) {
  if (k.rows == 0 || k.cols == 0) return {};
  constexpr int N = kPack<T>;
  if (k.cols % N == 0 && is_aligned({k.output, k.bias}, 16))
    add_bias_of_expert<T, N><<<grid_of(k.rows), kThreads, 0, stream>>>(k);
  else
    add_bias_of_expert<T, 1><<<grid_of(k.rows), kThreads, 0, stream>>>(k);
  return launched("expert_bias_forward");
}

template <class T>
Result<void> expert_bias_dots(const ExpertBiasDots<T>& k, cudaStream_t stream) {
  if (k.rows == 0 || k.cols == 0) return {};
  dots<<<grid_of(k.rows), kThreads, 0, stream>>>(k);
  return launched("expert_bias_dots");
}

template <class T, class G>
Result<void> expert_bias_gradient(const ExpertBiasGradient<T, G>& k, cudaStream_t stream,
                                  ExactOutlier* outlier) {
  if (k.cols == 0 || k.experts == 0) return {};
  MFSDP_TRY(check_experts(k.experts));
  const dim3 grid = grid_of(ceil_div(k.cols, kThreads), k.experts);
  if (k.pieces.grid) {
    MFSDP_LET(steps, grid_steps(*k.pieces.grid, KernelKind::expert_bias_gradient, outlier));
    column_of_expert<true><<<grid, kThreads, 0, stream>>>(k, Rounded{steps});
  } else {
    column_of_expert<false><<<grid, kThreads, 0, stream>>>(k, Chain{});
  }
  return launched("expert_bias_gradient");
}

#define MFSDP_INSTANTIATE(T)                                                            \
  template Result<void> add_bias(const AddBias<T>&, cudaStream_t);                      \
  template Result<void> sigmoid_forward(const SigmoidForward<T>&, cudaStream_t);        \
  template Result<void> sigmoid_backward(const SigmoidBackward<T>&, cudaStream_t);      \
  template Result<void> expert_bias_forward(const ExpertBiasForward<T>&, cudaStream_t); \
  template Result<void> expert_bias_dots(const ExpertBiasDots<T>&, cudaStream_t)
MFSDP_INSTANTIATE(Bf16);
MFSDP_INSTANTIATE(Fp16);
MFSDP_INSTANTIATE(float);
#undef MFSDP_INSTANTIATE

#define MFSDP_INSTANTIATE(T, G)                                                             \
  template Result<void> expert_bias_gradient(const ExpertBiasGradient<T, G>&, cudaStream_t, \
                                             ExactOutlier*)
MFSDP_INSTANTIATE(Bf16, Bf16);
MFSDP_INSTANTIATE(Bf16, float);
MFSDP_INSTANTIATE(Fp16, Fp16);
MFSDP_INSTANTIATE(Fp16, float);
MFSDP_INSTANTIATE(float, Bf16);
MFSDP_INSTANTIATE(float, float);
#undef MFSDP_INSTANTIATE

}  // namespace mfsdp::cuda
