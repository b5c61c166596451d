#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/update.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::DecayRun;
using kernels::Update;

constexpr int kThreads = 256;
constexpr int kUnroll = 2;

/// OptimizerSettings in the precision of arithmetic.
struct Constants {
  float beta1;
  float beta2;
  float epsilon;
  float weight_decay;
};

/// What one step makes of them.
struct StepConstants {
  float learning_rate;
  float keep;  ///< of a weight that decays
  float step;
  float root;
  float scale;
};

template <class G, class W, class C>
__device__ StepConstants step_constants(const Update<G, W, C>& k, const Constants& c) {
  const float learning_rate = k.step->learning_rate;
  return {.learning_rate = learning_rate,
          .keep = 1 - learning_rate * c.weight_decay,
          .step = learning_rate / k.step->bias_correction1,
          .root = sqrtf(k.step->bias_correction2),
          .scale = k.norm == nullptr ? k.loss[2] : k.loss[2] * k.norm[1]};
}

/// N elements from `at` on, whose moments lie in the same places. As adamw() and sgd() of
/// verify/cpu/kernels.
template <class G, class W, class C, int N>
struct Elements {
  float gradient[N];
  float weight[N];
  float exp_avg[N];
  float exp_avg_sq[N];

  __device__ void load(const Update<G, W, C>& k, std::int64_t at) {
    load_widened<N>(k.gradients + at, gradient);
    load_widened<N>(k.weights + at, weight);
    if (k.exp_avg == nullptr) return;
    load_widened<N>(k.exp_avg + at, exp_avg);
    load_widened<N>(k.exp_avg_sq + at, exp_avg_sq);
  }

  __device__ void advance(int i, bool adam, float keep, const Constants& c,
                          const StepConstants& s) {
    const float g = gradient[i] * s.scale;
    if (!adam) {
      weight[i] = weight[i] * keep - s.learning_rate * g;
      return;
    }
    exp_avg[i] = c.beta1 * exp_avg[i] + (1 - c.beta1) * g;
    exp_avg_sq[i] = c.beta2 * exp_avg_sq[i] + (1 - c.beta2) * g * g;
    const float divisor = sqrtf(exp_avg_sq[i]) / s.root + c.epsilon;
    weight[i] = weight[i] * keep - s.step * exp_avg[i] / divisor;
  }

  __device__ void store(const Update<G, W, C>& k, std::int64_t at) const {
    store_narrowed<N>(k.weights + at, weight);
    if (k.compute != nullptr) {
      float rounded[N];  // the compute weights are those of the stored main weights
      widen_all(narrow_all<W, N>(weight), rounded);
      store_narrowed<N>(k.compute + at, rounded);
    }
    if (k.exp_avg == nullptr) return;
    store_narrowed<N>(k.exp_avg + at, exp_avg);
    store_narrowed<N>(k.exp_avg_sq + at, exp_avg_sq);
  }
};

/// The run that holds element `at`.
__device__ inline std::int64_t run_of(const DecayRun* runs, std::int64_t count, std::int64_t at) {
  std::int64_t low = 0;
  for (std::int64_t high = count - 1; low < high;) {
    const std::int64_t middle = (low + high + 1) / 2;
    if (runs[middle].first <= at)
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

template <class G, class W, class C, int N>
__device__ void advance(Elements<G, W, C, N>& e, bool adam, std::int64_t at, const DecayRun* runs,
                        std::int64_t& run, const Constants& c, const StepConstants& s) {
  std::int64_t end = runs[run].first + runs[run].count;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    for (; at + i >= end; end = runs[run].first + runs[run].count) ++run;
    e.advance(i, adam, runs[run].decays ? s.keep : 1.0F, c, s);
  }
}

template <class G, class W, class C, int N>
__global__ void __launch_bounds__(kThreads)
    update_slice(const Update<G, W, C> k, const Constants c, const DecayRun* runs,
                 std::int64_t run_count) {
  if (k.norm != nullptr && k.norm[2] != 0) return;  // the norm is infinite or NaN
  const StepConstants s = step_constants(k, c);
  const bool adam = k.exp_avg != nullptr;
  const std::int64_t packs = k.elements / N;
  const std::int64_t begin =
      static_cast<std::int64_t>(blockIdx.x) * kUnroll * kThreads + threadIdx.x;
  std::int64_t run =
      run_of(runs, run_count, static_cast<std::int64_t>(blockIdx.x) * kUnroll * kThreads * N);
  Elements<G, W, C, N> elements[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (begin + u * kThreads < packs) elements[u].load(k, (begin + u * kThreads) * N);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t at = (begin + u * kThreads) * N;
    if (begin + u * kThreads >= packs) continue;
    advance(elements[u], adam, at, runs, run, c, s);
    elements[u].store(k, at);
  }
  const std::int64_t rest = packs * N + threadIdx.x;
  if (blockIdx.x + 1 == gridDim.x && rest < k.elements) {
    Elements<G, W, C, 1> one;
    one.load(k, rest);
    run = run_of(runs, run_count, rest);
    advance(one, adam, rest, runs, run, c, s);
    one.store(k, rest);
  }
}

}  // namespace

template <class G, class W, class C>
Result<void> update(const Update<G, W, C>& k, const OptimizerSettings& optimizer,
                    std::span<const DecayRun> runs, cudaStream_t stream) {
  if (k.elements == 0) return {};
  const Constants constants{.beta1 = static_cast<float>(optimizer.beta1),
                            .beta2 = static_cast<float>(optimizer.beta2),
                            .epsilon = static_cast<float>(optimizer.epsilon),
                            .weight_decay = static_cast<float>(optimizer.weight_decay)};
  const auto launch = [&](auto n) {
    const std::int64_t blocks =
        std::max<std::int64_t>(ceil_div(k.elements / n(), std::int64_t{kUnroll} * kThreads), 1);
    update_slice<G, W, C, n()><<<grid_of(blocks), kThreads, 0, stream>>>(
        k, constants, runs.data(), static_cast<std::int64_t>(runs.size()));
  };
  constexpr int N = 4;  // the moments are fp32
  const bool packs = is_aligned({k.exp_avg, k.exp_avg_sq}, N * sizeof(float)) &&
                     is_aligned({k.gradients}, N * sizeof(G)) &&
                     is_aligned({k.weights}, N * sizeof(W)) &&
                     is_aligned({k.compute}, N * sizeof(C));
  if (packs)
    launch(std::integral_constant<int, N>{});
  else
    launch(std::integral_constant<int, 1>{});
  return launched("update");
}

using Runs = std::span<const DecayRun>;
template Result<void> update(const Update<Bf16, float, Bf16>&, const OptimizerSettings&, Runs,
                             cudaStream_t);
template Result<void> update(const Update<Bf16, float, float>&, const OptimizerSettings&, Runs,
                             cudaStream_t);
template Result<void> update(const Update<Bf16, Bf16, Bf16>&, const OptimizerSettings&, Runs,
                             cudaStream_t);
template Result<void> update(const Update<float, float, Bf16>&, const OptimizerSettings&, Runs,
                             cudaStream_t);
template Result<void> update(const Update<float, float, float>&, const OptimizerSettings&, Runs,
                             cudaStream_t);
template Result<void> update(const Update<float, Bf16, Bf16>&, const OptimizerSettings&, Runs,
                             cudaStream_t);

}  // namespace mfsdp::cuda
