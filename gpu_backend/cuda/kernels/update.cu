#include <algorithm>

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

/// What one step makes of them; `keep` is that of a weight that decays.
template <class G, class W, class C>
__device__ UpdateStep<float> step_of(const Update<G, W, C>& k, const Constants& c) {
  const float learning_rate = k.step->learning_rate;
  return {.learning_rate = learning_rate,
          .keep = 1 - learning_rate * c.weight_decay,
          .beta1 = c.beta1,
          .beta2 = c.beta2,
          .epsilon = c.epsilon,
          .corrected_rate = learning_rate / k.step->bias_correction1,
          .correction_root = sqrtf(k.step->bias_correction2)};
}

/// N elements from `at` on, whose states lie in the same places.
template <class Rule, class G, class W, class C, int N>
struct Elements {
  static constexpr int kStates = static_cast<int>(Rule::states.size());

  float gradient[N];
  float weight[N];
  float state[kStates + 1][N];  // never empty

  __device__ void load(const Update<G, W, C>& k, std::int64_t at) {
    load_widened<N>(k.gradients + at, gradient);
    load_widened<N>(k.weights + at, weight);
#pragma unroll
    for (int s = 0; s < kStates; ++s) load_widened<N>(k.states.data()[s] + at, state[s]);
  }

  __device__ void advance(int i, float scale, const UpdateStep<float>& step) {
    float own[kStates + 1];
#pragma unroll
    for (int s = 0; s < kStates; ++s) own[s] = state[s][i];
    weight[i] = Rule::updated(weight[i], gradient[i] * scale, own, step);
#pragma unroll
    for (int s = 0; s < kStates; ++s) state[s][i] = own[s];
  }

  __device__ void store(const Update<G, W, C>& k, std::int64_t at) const {
    store_narrowed<N>(k.weights + at, weight);
    if (k.compute != nullptr) {
      float rounded[N];  // the compute weights are those of the stored main weights
      widen_all(narrow_all<W, N>(weight), rounded);
      store_narrowed<N>(k.compute + at, rounded);
    }
#pragma unroll
    for (int s = 0; s < kStates; ++s) store_narrowed<N>(k.states.data()[s] + at, state[s]);
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

template <class Rule, class G, class W, class C, int N>
__device__ void advance(Elements<Rule, G, W, C, N>& e, std::int64_t at, const DecayRun* runs,
                        std::int64_t& run, float scale, const UpdateStep<float>& decayed) {
  UpdateStep<float> kept = decayed;
  kept.keep = 1;
  std::int64_t end = runs[run].first + runs[run].count;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    for (; at + i >= end; end = runs[run].first + runs[run].count) ++run;
    e.advance(i, scale, runs[run].decays ? decayed : kept);
  }
}

template <class Rule, class G, class W, class C, int N>
__global__ void __launch_bounds__(kThreads)
    update_slice(const Update<G, W, C> k, const Constants c, const DecayRun* runs,
                 std::int64_t run_count) {
  if (k.norm != nullptr && k.norm[2] != 0) return;  // the norm is infinite or NaN
  const UpdateStep<float> step = step_of(k, c);
  const float scale = k.norm == nullptr ? k.loss[2] : k.loss[2] * k.norm[1];
  const std::int64_t packs = k.elements / N;
  const std::int64_t begin =
      static_cast<std::int64_t>(blockIdx.x) * kUnroll * kThreads + threadIdx.x;
  std::int64_t run =
      run_of(runs, run_count, static_cast<std::int64_t>(blockIdx.x) * kUnroll * kThreads * N);
  Elements<Rule, G, W, C, N> elements[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (begin + u * kThreads < packs) elements[u].load(k, (begin + u * kThreads) * N);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t at = (begin + u * kThreads) * N;
    if (begin + u * kThreads >= packs) continue;
    advance(elements[u], at, runs, run, scale, step);
    elements[u].store(k, at);
  }
  const std::int64_t rest = packs * N + threadIdx.x;
  if (blockIdx.x + 1 == gridDim.x && rest < k.elements) {
    Elements<Rule, G, W, C, 1> one;
    one.load(k, rest);
    run = run_of(runs, run_count, rest);
    advance(one, rest, runs, run, scale, step);
    one.store(k, rest);
  }
}

}  // namespace

template <class G, class W, class C>
Result<void> update(const Update<G, W, C>& k, Optimizer optimizer,
                    const OptimizerSettings& settings, std::span<const DecayRun> runs,
                    cudaStream_t stream) {
  if (k.elements == 0) return {};
  const Constants constants{.beta1 = static_cast<float>(settings.beta1),
                            .beta2 = static_cast<float>(settings.beta2),
                            .epsilon = static_cast<float>(settings.epsilon),
                            .weight_decay = static_cast<float>(settings.weight_decay)};
  const auto launch = [&](auto n) {
    const std::int64_t blocks =
        std::max<std::int64_t>(ceil_div(k.elements / n(), std::int64_t{kUnroll} * kThreads), 1);
    with_rule(optimizer, [&]<class Rule>(Rule) {
      update_slice<Rule, G, W, C, n()><<<grid_of(blocks), kThreads, 0, stream>>>(
          k, constants, runs.data(), static_cast<std::int64_t>(runs.size()));
    });
  };
  constexpr int N = 4;  // states are fp32
  const bool packs =
      std::ranges::all_of(
          k.states, [](const float* state) { return is_aligned({state}, N * sizeof(float)); }) &&
      is_aligned({k.gradients}, N * sizeof(G)) && is_aligned({k.weights}, N * sizeof(W)) &&
      is_aligned({k.compute}, N * sizeof(C));
  if (packs)
    launch(std::integral_constant<int, N>{});
  else
    launch(std::integral_constant<int, 1>{});
  return launched("update");
}

using Runs = std::span<const DecayRun>;
template Result<void> update(const Update<Bf16, float, Bf16>&, Optimizer, const OptimizerSettings&,
                             Runs, cudaStream_t);
template Result<void> update(const Update<Bf16, float, float>&, Optimizer, const OptimizerSettings&,
                             Runs, cudaStream_t);
template Result<void> update(const Update<Bf16, Bf16, Bf16>&, Optimizer, const OptimizerSettings&,
                             Runs, cudaStream_t);
template Result<void> update(const Update<float, float, Bf16>&, Optimizer, const OptimizerSettings&,
                             Runs, cudaStream_t);
template Result<void> update(const Update<float, float, float>&, Optimizer,
                             const OptimizerSettings&, Runs, cudaStream_t);
template Result<void> update(const Update<float, Bf16, Bf16>&, Optimizer, const OptimizerSettings&,
                             Runs, cudaStream_t);

}  // namespace mfsdp::cuda
