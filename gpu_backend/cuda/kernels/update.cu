#include <algorithm>

#include "core/plan/state_codes.hpp"
#include "gpu_backend/cuda/kernels/fp8.cuh"
#include "gpu_backend/cuda/kernels/update.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::DecayRun;
using kernels::Update;

constexpr int kThreads = 256;
constexpr int kUnroll = 2;

/// OptimizerSettings in fp32.
struct Constants {
  float beta1;
  float beta2;
  float epsilon;
  float weight_decay;
  float momentum;
};

/// The step of the elements in a run.
__device__ inline UpdateStep<float> step_of(const StepBlock& block, const Constants& c,
                                            const DecayRun& run) {
  const float learning_rate = block.learning_rate * run.rate;
  return {.learning_rate = learning_rate,
          .keep = run.decays ? 1 - learning_rate * c.weight_decay : 1,
          .beta1 = c.beta1,
          .beta2 = c.beta2,
          .epsilon = c.epsilon,
          .momentum = c.momentum,
          .corrected_rate = learning_rate / block.bias_correction1,
          .correction_root = sqrtf(block.bias_correction2)};
}

/// Updates N elements from `at` on, whose states have the same index.
template <class Rule, class G, class W, class C, class S, int N>
struct Elements {
  static constexpr int kStates = static_cast<int>(Rule::states.size());

  float gradient[N];
  float weight[N];
  float state[kStates + 1][N];  // never an empty array

  __device__ void load(const Update<G, W, C, S>& k, std::int64_t at) {
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

  __device__ void store(const Update<G, W, C, S>& k, std::int64_t at) const {
    store_narrowed<N>(k.weights + at, weight);
    if (k.compute != nullptr) {
      float rounded[N];  // the compute weights are rounded from the stored main weights
      widen_all(narrow_all<W, N>(weight), rounded);
      store_narrowed<N>(k.compute + at, rounded);
    }
#pragma unroll
    for (int s = 0; s < kStates; ++s) store_narrowed<N>(k.states.data()[s] + at, state[s]);
  }
};

/// The run that contains element `at`.
template <class Run>
__device__ std::int64_t run_of(const Run* runs, std::int64_t count, std::int64_t at) {
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

/// Updates elements from `at` on; the first is in run `run`. Sets `run` to that of the last one.
template <int N, class Advance>
__device__ void for_each_of_runs(std::int64_t at, const DecayRun* runs, std::int64_t& run,
                                 const StepBlock& block, const Constants& c,
                                 const Advance& advance) {
  std::int64_t end = runs[run].first + runs[run].count;
  UpdateStep<float> step = step_of(block, c, runs[run]);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    if (at + i >= end) {
      while (at + i >= end) {
        ++run;
        end = runs[run].first + runs[run].count;
      }
      step = step_of(block, c, runs[run]);
    }
    advance(i, step);
  }
}

/// Factor of the gradient; directions are already scaled.
template <class U>
__device__ float scale_of(const U& k) {
  if (k.loss == nullptr) return 1;
  return k.norm == nullptr ? k.loss[2] : k.loss[2] * k.norm[1];
}

/// Returns true if the norm is infinite or NaN: then nothing changes. A direction without a norm is
/// 0: elements from `begin` on, every `step`-th.
template <class Rule, class U>
__device__ bool skips(const U& k, std::int64_t begin, std::int64_t step) {
  if (k.norm == nullptr || k.norm[2] == 0) return false;
  if constexpr (std::is_same_v<Rule, MuonMomentumRule>)
    for (std::int64_t i = begin; i < k.elements; i += step) k.weights[i] = {};
  return true;
}
__device__ inline std::int64_t thread_of_grid() {
  return static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
}
__device__ inline std::int64_t threads_of_grid() {
  return static_cast<std::int64_t>(gridDim.x) * kThreads;
}

/// The largest magnitudes of a block's weights, by tensor. Most blocks have elements of one tensor.
template <class W>
class WeightAmax {
 public:
  /// For elements [first, end), where first < end.
  __device__ WeightAmax(const AmaxOfWeights& to, std::int64_t first, std::int64_t end) : to_(to) {
    if (to.amax == nullptr) return;
    run_ = run_of(to.runs, to.count, first);
    has_one_ = end <= to.runs[run_].first + to.runs[run_].count;
  }
  template <int N>
  __device__ void add(const Pack<W, N>& weights, std::int64_t at) {
    if (to_.amax == nullptr) return;
    if (has_one_) return largest_.add(weights);
    std::int64_t run = run_;
    for (int i = 0; i < N; ++i) {
      while (at + i >= to_.runs[run].first + to_.runs[run].count) ++run;
      Largest<W> one;
      one.add(Pack<W, 1>{{narrowed<W>(element(weights, i))}});
      auto* const amax = reinterpret_cast<std::uint32_t*>(to_.amax + to_.runs[run].slot);
      if (one.bits() > __ldcg(amax)) atomicMax(amax, one.bits());
    }
  }
  /// Call it once, in all threads.
  __device__ void finish() const {
    if (to_.amax != nullptr && has_one_) raise_to(largest_.bits(), to_.amax + to_.runs[run_].slot);
  }

 private:
  AmaxOfWeights to_;
  std::int64_t run_ = 0;
  bool has_one_ = false;
  Largest<W> largest_;
};

template <class Rule, class G, class W, class C, class S, int N>
__global__ void __launch_bounds__(kThreads)
    update_slice(const Update<G, W, C, S> k, const Constants c, const DecayRun* runs,
                 std::int64_t run_count, const AmaxOfWeights to) {
  constexpr std::int64_t kOfBlock = std::int64_t{kUnroll} * kThreads * N;
  const std::int64_t of_block = blockIdx.x * kOfBlock;
  const bool is_last = blockIdx.x + 1 == gridDim.x;
  WeightAmax<W> amax(to, of_block, is_last ? k.elements : of_block + kOfBlock);
  if (skips<Rule>(k, thread_of_grid(), threads_of_grid())) {
    if (to.amax == nullptr) return;
    for (std::int64_t at = of_block + threadIdx.x;
         at < (is_last ? k.elements : of_block + kOfBlock); at += kThreads)
      amax.add(load<W, 1>(k.weights + at), at);
    return amax.finish();
  }
  const StepBlock block = *k.step;
  const float scale = scale_of(k);
  const std::int64_t packs = k.elements / N;
  const std::int64_t begin =
      static_cast<std::int64_t>(blockIdx.x) * kUnroll * kThreads + threadIdx.x;
  std::int64_t run =
      run_of(runs, run_count, static_cast<std::int64_t>(blockIdx.x) * kUnroll * kThreads * N);
  Elements<Rule, G, W, C, S, N> elements[kUnroll];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u)
    if (begin + u * kThreads < packs) elements[u].load(k, (begin + u * kThreads) * N);
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t at = (begin + u * kThreads) * N;
    if (begin + u * kThreads >= packs) continue;
    for_each_of_runs<N>(at, runs, run, block, c, [&](int i, const UpdateStep<float>& step) {
      elements[u].advance(i, scale, step);
    });
    elements[u].store(k, at);
    amax.add(narrow_all<W, N>(elements[u].weight), at);
  }
  const std::int64_t rest = packs * N + threadIdx.x;
  if (blockIdx.x + 1 == gridDim.x && rest < k.elements) {
    Elements<Rule, G, W, C, S, 1> one;
    one.load(k, rest);
    run = run_of(runs, run_count, rest);
    for_each_of_runs<1>(rest, runs, run, block, c,
                        [&](int, const UpdateStep<float>& step) { one.advance(0, scale, step); });
    one.store(k, rest);
    amax.add(narrow_all<W, 1>(one.weight), rest);
  }
  amax.finish();
}

// ---- states in bytes ---------------------------------------------------------------------------

/// Elements of a block per lane of its warp.
constexpr int kOfLane = static_cast<int>(kStateBlock) / kWarp;
using Codes = Pack<std::uint8_t, kOfLane>;

template <bool is_signed>
__device__ std::uint8_t encoded(float value, float largest) {
  return largest > 0 ? code_of_value<is_signed>(value / largest) : std::uint8_t{0};
}

/// Writes a lane's part of one block's state, and the block's scale.
template <bool is_signed>
__device__ void encode(const float (&values)[kOfLane], std::uint8_t* codes, float* scale) {
  float largest = 0;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) largest = fmaxf(largest, fabsf(values[i]));
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    largest = fmaxf(largest, __shfl_xor_sync(0xffffffffU, largest, offset));
  Codes pack;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) pack.values[i] = encoded<is_signed>(values[i], largest);
  store<kOfLane>(codes, pack);
  if (threadIdx.x % kWarp == 0) *scale = largest;
}

/// A warp has one block of each state.
template <class Rule, class G, class W, class C>
__global__ void __launch_bounds__(kThreads)
    update_blocks(const Update<G, W, C, std::uint8_t> k, const Constants c, const DecayRun* runs,
                  std::int64_t run_count) {
  constexpr int kStates = static_cast<int>(Rule::states.size());
  constexpr bool kSigned[kStates + 1] = {Rule::states[0].is_signed,
                                         Rule::states[kStates - 1].is_signed};
  __shared__ float tables[2][256];  // for states without and with sign
  for (int code = static_cast<int>(threadIdx.x); code < 256; code += kThreads) {
    tables[0][code] = value_of_code<false>(static_cast<std::uint8_t>(code));
    tables[1][code] = value_of_code<true>(static_cast<std::uint8_t>(code));
  }
  __syncthreads();
  if (skips<Rule>(k, thread_of_grid(), threads_of_grid())) return;
  const StepBlock block = *k.step;
  const float scale = scale_of(k);
  const std::int64_t warp =
      (static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x) / kWarp;
  if (warp * kStateBlock >= k.elements) return;
  const std::int64_t at = warp * kStateBlock + threadIdx.x % kWarp * kOfLane;
  float gradient[kOfLane];
  float weight[kOfLane];
  float state[kStates][kOfLane];
  load_widened<kOfLane / 2>(k.gradients + at, reinterpret_cast<float(&)[kOfLane / 2]>(gradient[0]));
  load_widened<kOfLane / 2>(k.gradients + at + kOfLane / 2,
                            reinterpret_cast<float(&)[kOfLane / 2]>(gradient[kOfLane / 2]));
  load_widened<kOfLane / 2>(k.weights + at, reinterpret_cast<float(&)[kOfLane / 2]>(weight[0]));
  load_widened<kOfLane / 2>(k.weights + at + kOfLane / 2,
                            reinterpret_cast<float(&)[kOfLane / 2]>(weight[kOfLane / 2]));
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    const Codes codes = load<std::uint8_t, kOfLane>(k.states.data()[s] + at);
    const float unit = k.scales.data()[s][warp];
#pragma unroll
    for (int i = 0; i < kOfLane; ++i)
      state[s][i] = tables[kSigned[s] ? 1 : 0][codes.values[i]] * unit;
  }
  std::int64_t run = run_of(runs, run_count, at);
  for_each_of_runs<kOfLane>(at, runs, run, block, c, [&](int i, const UpdateStep<float>& step) {
    float own[kStates];
#pragma unroll
    for (int s = 0; s < kStates; ++s) own[s] = state[s][i];
    weight[i] = Rule::updated(weight[i], gradient[i] * scale, own, step);
#pragma unroll
    for (int s = 0; s < kStates; ++s) state[s][i] = own[s];
  });
#pragma unroll
  for (int i = 0; i < kOfLane; i += kOfLane / 2) {
    float half[kOfLane / 2];
#pragma unroll
    for (int j = 0; j < kOfLane / 2; ++j) half[j] = weight[i + j];
    store_narrowed<kOfLane / 2>(k.weights + at + i, half);
    if (k.compute == nullptr) continue;
    float rounded[kOfLane / 2];  // the compute weights are rounded from the stored main weights
    widen_all(narrow_all<W, kOfLane / 2>(half), rounded);
    store_narrowed<kOfLane / 2>(k.compute + at + i, rounded);
  }
  encode<kSigned[0]>(state[0], k.states.data()[0] + at, k.scales.data()[0] + warp);
  if constexpr (kStates > 1)
    encode<kSigned[1]>(state[1], k.states.data()[1] + at, k.scales.data()[1] + warp);
}

}  // namespace

namespace {

/// `rules`: list in which `optimizer` is looked up.
template <class Rules, class G, class W, class C, class S>
Result<void> launch_update(Rules rules, const Update<G, W, C, S>& k, Optimizer optimizer,
                           const OptimizerSettings& settings, std::span<const DecayRun> runs,
                           cudaStream_t stream, const AmaxOfWeights& amax) {
  if (k.elements == 0) return {};
  const Constants constants{.beta1 = static_cast<float>(settings.beta1),
                            .beta2 = static_cast<float>(settings.beta2),
                            .epsilon = static_cast<float>(settings.epsilon),
                            .weight_decay = static_cast<float>(settings.weight_decay),
                            .momentum = static_cast<float>(settings.momentum)};
  const auto run_count = static_cast<std::int64_t>(runs.size());
  if constexpr (std::is_same_v<S, std::uint8_t>) {
    const bool aligned =
        is_aligned({k.gradients, k.weights, k.compute}, 16) &&
        std::ranges::all_of(k.states, [](const S* state) { return is_aligned({state}, 16); });
    if (amax.amax != nullptr) return fail("kernel update", "expected no amax with states in bytes");
    if (!aligned)
      return fail("kernel update",
                  "expected operands on multiples of 16 bytes with states in bytes");
    const std::int64_t blocks = ceil_div(k.elements / kStateBlock, std::int64_t{kThreads / kWarp});
    with_rule(rules, optimizer, [&]<class Rule>(Rule) {
      if constexpr (Rule::states.size() > 0)
        update_blocks<Rule, G, W, C>
            <<<grid_of(blocks), kThreads, 0, stream>>>(k, constants, runs.data(), run_count);
    });
  } else {
    const auto launch = [&](auto n) {
      const std::int64_t blocks =
          std::max<std::int64_t>(ceil_div(k.elements / n(), std::int64_t{kUnroll} * kThreads), 1);
      with_rule(rules, optimizer, [&]<class Rule>(Rule) {
        update_slice<Rule, G, W, C, S, n()>
            <<<grid_of(blocks), kThreads, 0, stream>>>(k, constants, runs.data(), run_count, amax);
      });
    };
    constexpr int N = 4;  // of the widest type, fp32: 16 bytes
    const bool packs =
        std::ranges::all_of(k.states,
                            [](const S* state) { return is_aligned({state}, N * sizeof(S)); }) &&
        is_aligned({k.gradients}, N * sizeof(G)) && is_aligned({k.weights}, N * sizeof(W)) &&
        is_aligned({k.compute}, N * sizeof(C));
    if (packs)
      launch(std::integral_constant<int, N>{});
    else
      launch(std::integral_constant<int, 1>{});
  }
  return launched("update");
}

}  // namespace

template <class G, class W, class C, class S>
Result<void> update(const Update<G, W, C, S>& k, Optimizer optimizer,
                    const OptimizerSettings& settings, std::span<const DecayRun> runs,
                    cudaStream_t stream, const AmaxOfWeights& amax) {
  return launch_update(UpdateRules{}, k, optimizer, settings, runs, stream, amax);
}

template <class G, class D, class S>
Result<void> momentum(const Update<G, D, D, S>& k, const OptimizerSettings& settings,
                      std::span<const DecayRun> run, cudaStream_t stream) {
  return launch_update(RuleList<MuonMomentumRule>{}, k, Optimizer::muon, settings, run, stream, {});
}

using Runs = std::span<const DecayRun>;
using Settings = OptimizerSettings;
#define MFSDP_UPDATE_OF(G, W, C, S)                                                         \
  template Result<void> update(const Update<G, W, C, S>&, Optimizer, const Settings&, Runs, \
                               cudaStream_t, const AmaxOfWeights&);
#define MFSDP_UPDATE(G, W, C)     \
  MFSDP_UPDATE_OF(G, W, C, float) \
  MFSDP_UPDATE_OF(G, W, C, Bf16)  \
  MFSDP_UPDATE_OF(G, W, C, std::uint8_t)
MFSDP_UPDATE(Bf16, float, Bf16)
MFSDP_UPDATE(Bf16, float, float)
MFSDP_UPDATE(Bf16, Bf16, Bf16)
MFSDP_UPDATE(float, float, Bf16)
MFSDP_UPDATE(float, float, float)
MFSDP_UPDATE(float, Bf16, Bf16)
MFSDP_UPDATE(float, float, Fp16)
MFSDP_UPDATE(Bf16, float, Fp16)
#define MFSDP_MOMENTUM_OF(G, D, S) \
  template Result<void> momentum(const Update<G, D, D, S>&, const Settings&, Runs, cudaStream_t);
#define MFSDP_MOMENTUM(G, D)     \
  MFSDP_MOMENTUM_OF(G, D, float) \
  MFSDP_MOMENTUM_OF(G, D, Bf16)  \
  MFSDP_MOMENTUM_OF(G, D, std::uint8_t)
MFSDP_MOMENTUM(Bf16, Bf16)
MFSDP_MOMENTUM(Bf16, float)
MFSDP_MOMENTUM(float, Bf16)
MFSDP_MOMENTUM(float, float)
#undef MFSDP_MOMENTUM
#undef MFSDP_MOMENTUM_OF
#undef MFSDP_UPDATE
#undef MFSDP_UPDATE_OF

}  // namespace mfsdp::cuda
