#include <limits>
#include <type_traits>

#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/experts.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::RouterBackward;
using kernels::RouterForward;
using kernels::RoutingSizes;

constexpr int kThreads = 256;
constexpr int kTokens = kThreads / kWarp;  // of a block: a warp each

/// Logits of a token in a warp's registers: lane l has experts l, l + 32, ... Slots after the last
/// expert hold a value that changes no maximum and no sum.
template <int Slots>
struct Row {
  float logit[Slots];
  float largest = -std::numeric_limits<float>::infinity();
  float sum = 0;  ///< of the exponentials

  template <class T>
  __device__ Row(const T* logits, std::int64_t experts, int lane) {
#pragma unroll
    for (int i = 0; i < Slots; ++i) {
      const int e = i * kWarp + lane;
      logit[i] = e < experts ? widened(logits[e]) : -std::numeric_limits<float>::infinity();
      largest = fmaxf(largest, logit[i]);
    }
#pragma unroll
    for (int offset = kWarp / 2; offset > 0; offset /= 2)
      largest = fmaxf(largest, __shfl_xor_sync(~0U, largest, offset));
#pragma unroll
    for (int i = 0; i < Slots; ++i)
      if (i * kWarp + lane < experts) sum += expf(logit[i] - largest);
    sum = warp_sum(sum);
  }

  __device__ float probability(float of) const { return expf(of - largest) / sum; }
};

/// Unsigned numbers in the order of floats; NaN is the smallest, 0.
__device__ std::uint32_t ordered(float value) {
  if (isnan(value)) return 0;
  const std::uint32_t bits = __float_as_uint(value + 0.0F);  // -0 becomes 0
  return (bits & 0x80000000U) != 0 ? ~bits : bits | 0x80000000U;
}
__device__ float value_of(std::uint32_t key) {
  if (key == 0) return std::numeric_limits<float>::quiet_NaN();
  return __uint_as_float((key & 0x80000000U) != 0 ? key & 0x7fffffffU : ~key);
}

struct Chosen {
  std::uint32_t key = 0;
  std::uint32_t expert = ~0U;
};

/// The free expert with the largest score; the lowest of equal ones. If its score is NaN, the
/// lowest free expert. `free`: a bit for each slot of the lane.
template <int Slots>
__device__ Chosen choose(const float (&scores)[Slots], std::uint32_t free, bool has_nan, int lane) {
  Chosen own;
#pragma unroll
  for (int i = 0; i < Slots; ++i) {
    if ((free >> i & 1U) == 0) continue;
    const std::uint32_t key = ordered(scores[i]);
    if (own.expert == ~0U || key > own.key)
      own = {key, static_cast<std::uint32_t>(i * kWarp + lane)};
  }
  if (has_nan) {
    std::uint32_t first = ~0U;
    bool is_nan = false;
#pragma unroll
    for (int i = Slots - 1; i >= 0; --i)
      if ((free >> i & 1U) != 0) {
        first = static_cast<std::uint32_t>(i * kWarp + lane);
        is_nan = isnan(scores[i]);
      }
    const std::uint32_t lowest = __reduce_min_sync(~0U, first);
    if (__any_sync(~0U, first == lowest && is_nan)) return {0, lowest};
  }
  const bool has_any = own.expert != ~0U;
  const std::uint32_t key = __reduce_max_sync(~0U, has_any ? own.key : 0U);
  const std::uint32_t expert = __reduce_min_sync(~0U, has_any && own.key == key ? own.expert : ~0U);
  return {key, expert};
}

template <int Slots>
__device__ std::uint32_t free_slots(std::int64_t experts, int lane) {
  std::uint32_t free = 0;
#pragma unroll
  for (int i = 0; i < Slots; ++i)
    if (i * kWarp + lane < experts) free |= 1U << i;
  return free;
}

template <int Slots>
__device__ bool any_nan(const float (&values)[Slots]) {
  bool nan = false;
#pragma unroll
  for (int i = 0; i < Slots; ++i) nan = nan || isnan(values[i]);
  return __any_sync(~0U, nan);
}

/// Removes the chosen experts from the free ones.
__device__ void take(const Chosen& chosen, std::uint32_t& free, int lane) {
  const int expert = static_cast<int>(chosen.expert);
  if (expert % kWarp == lane) free &= ~(1U << (expert / kWarp));
}

/// The experts of the chosen groups: the groups with the best expert or, for sigmoids, the best
/// two.
template <int Slots>
__device__ std::uint32_t slots_of_groups(const RoutingSizes& s, const float (&scores)[Slots],
                                         bool has_nan, int lane) {
  const int size = static_cast<int>(s.experts / s.groups);
  float of_groups[Slots];
#pragma unroll
  for (int i = 0; i < Slots; ++i) of_groups[i] = -std::numeric_limits<float>::infinity();
  for (int group = 0; group < s.groups; ++group) {
    std::uint32_t inside = 0;
#pragma unroll
    for (int i = 0; i < Slots; ++i)
      if (const int e = i * kWarp + lane; e < s.experts && e / size == group) inside |= 1U << i;
    const Chosen best = choose(scores, inside, has_nan, lane);
    float score = value_of(best.key);
    if (s.sigmoid) {
      take(best, inside, lane);
      score += value_of(choose(scores, inside, has_nan, lane).key);
    }
#pragma unroll
    for (int i = 0; i < Slots; ++i)
      if (i * kWarp + lane == group) of_groups[i] = score;
  }
  const bool nan_group = any_nan(of_groups);
  const std::uint32_t all = free_slots<Slots>(s.groups, lane);
  std::uint32_t left = all;
  for (int i = 0; i < s.chosen_groups; ++i)
    take(choose(of_groups, left, nan_group, lane), left, lane);
  const std::uint32_t chosen = all & ~left;
  std::uint32_t free = 0;
#pragma unroll
  for (int i = 0; i < Slots; ++i) {
    const int e = i * kWarp + lane;
    const int group = e < s.experts ? e / size : 0;
    const bool in = (__shfl_sync(~0U, chosen, group % kWarp) >> (group / kWarp) & 1U) != 0;
    if (e < s.experts && in) free |= 1U << i;
  }
  return free;
}

/// Broadcasts the value of the lane that has expert e.
template <int Slots>
__device__ float value_of_expert(const float (&values)[Slots], int e) {
  float mine = 0;
#pragma unroll
  for (int i = 0; i < Slots; ++i)
    if (i == e / kWarp) mine = values[i];
  return __shfl_sync(~0U, mine, e % kWarp);
}

__device__ float logistic(float x) { return 1 / (1 + expf(-x)); }

template <int Slots, class T>
__global__ void __launch_bounds__(kThreads) forward(const RouterForward<T> k) {
  const RoutingSizes& s = k.sizes;
  const std::int64_t t = std::int64_t{blockIdx.x} * kTokens + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (t >= s.tokens) return;
  const Row<Slots> row(k.logits + t * s.experts, s.experts, lane);
  float scores[Slots];
  float sigmoids[Slots];
#pragma unroll
  for (int i = 0; i < Slots; ++i) {
    const int e = i * kWarp + lane;
    sigmoids[i] = s.sigmoid && e < s.experts ? logistic(row.logit[i]) : 0.0F;
    scores[i] = s.sigmoid && e < s.experts ? sigmoids[i] + widened(k.correction[e]) : row.logit[i];
  }
  const bool has_nan = any_nan(scores);
  std::uint32_t free = s.groups == 0 ? free_slots<Slots>(s.experts, lane)
                                     : slots_of_groups(s, scores, has_nan, lane);
  const auto scale = static_cast<float>(s.scale);
  float sum = 0;
  for (int i = 0; i < s.top_k; ++i) {
    const Chosen chosen = choose(scores, free, has_nan, lane);
    const int expert = static_cast<int>(chosen.expert);
    take(chosen, free, lane);
    const float p =
        s.sigmoid ? value_of_expert(sigmoids, expert) : row.probability(value_of(chosen.key));
    sum += p;
    if (i % kWarp != lane) continue;
    k.indices[t * s.top_k + i] = expert;
    k.weights[t * s.top_k + i] = s.normalised ? p : p * scale;
    if (k.counts != nullptr) atomicAdd(k.counts + t / s.seq * s.experts + expert, 1);
  }
  if (!s.normalised) return;
  for (std::int64_t i = lane; i < s.top_k; i += kWarp)
    k.weights[t * s.top_k + i] = k.weights[t * s.top_k + i] / sum * scale;
}

/// As router_backward of verify/cpu/kernels/experts.hpp, one warp per token.
template <int Slots, class T>
__global__ void __launch_bounds__(kThreads) backward(const RouterBackward<T> k) {
  const RoutingSizes& s = k.sizes;
  const std::int64_t t = std::int64_t{blockIdx.x} * kTokens + threadIdx.x / kWarp;
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  if (t >= s.tokens) return;
  const Row<Slots> row(k.logits + t * s.experts, s.experts, lane);
  const float scale = k.loss_scale == nullptr ? 1.0F : static_cast<float>(k.loss_scale->scale);
  const std::int32_t* const chosen = k.indices + t * s.top_k;
  const float* const d_weights = k.d_weights + t * s.top_k;
  float p[Slots];
  float dp[Slots];
  const float balance = k.counts == nullptr ? 0.0F
                                            : scale * k.aux_loss * static_cast<float>(s.experts) /
                                                  static_cast<float>(s.seq * s.top_k);
#pragma unroll
  for (int i = 0; i < Slots; ++i) {
    const int e = i * kWarp + lane;
    p[i] = e >= s.experts ? 0.0F
           : s.sigmoid    ? logistic(row.logit[i])
                          : row.probability(row.logit[i]);
    dp[i] = 0;
  }
  float sum = 1;
  float dot = 0;
  if (s.normalised) {
    sum = 0;
    for (int i = 0; i < s.top_k; ++i) sum += value_of_expert(p, chosen[i]);
    for (int i = 0; i < s.top_k; ++i) dot += d_weights[i] * (value_of_expert(p, chosen[i]) / sum);
  }
  for (int i = 0; i < s.top_k; ++i) {
    const int e = chosen[i];
    const float d = (d_weights[i] - dot) * static_cast<float>(s.scale) / sum;
#pragma unroll
    for (int j = 0; j < Slots; ++j)
      if (j * kWarp + lane == e) dp[j] = d;
  }
  if (s.sigmoid) {
#pragma unroll
    for (int i = 0; i < Slots; ++i)
      if (const int e = i * kWarp + lane; e < s.experts)
        k.d_logits[t * s.experts + e] = narrowed<T>(dp[i] * p[i] * (1 - p[i]));
    return;
  }
  float mean = 0;
#pragma unroll
  for (int i = 0; i < Slots; ++i) {
    const int e = i * kWarp + lane;
    if (k.counts != nullptr && e < s.experts)
      dp[i] += balance * static_cast<float>(k.counts[t / s.seq * s.experts + e]);
    mean += dp[i] * p[i];
  }
  mean = warp_sum(mean);
  const float z = k.z_loss == 0 ? 0.0F : scale * 2 * k.z_loss * (row.largest + logf(row.sum));
#pragma unroll
  for (int i = 0; i < Slots; ++i) {
    const int e = i * kWarp + lane;
    if (e < s.experts) k.d_logits[t * s.experts + e] = narrowed<T>(p[i] * (dp[i] - mean + z));
  }
}

/// Calls launch(slots), a constant, for the number of logits of a lane.
template <int Slots = 1, class Launch>
void with_slots(std::int64_t experts, const Launch& launch) {
  if constexpr (Slots * kWarp < kMostExperts) {
    if (experts > Slots * kWarp) return with_slots<2 * Slots>(experts, launch);
  }
  launch(std::integral_constant<int, Slots>{});
}

}  // namespace

template <class T>
Result<void> router_forward(const RouterForward<T>& k, cudaStream_t stream) {
  const RoutingSizes& s = k.sizes;
  if (s.tokens == 0) return {};
  MFSDP_TRY(check_experts(s.experts));
  if (k.counts != nullptr) {
    const auto count = static_cast<std::size_t>(s.tokens / s.seq * s.experts);
    MFSDP_TRY(check(cudaMemsetAsync(k.counts, 0, count * sizeof(std::int32_t), stream),
                    "router_forward"));
  }
  with_slots(s.experts, [&](auto slots) {
    forward<slots.value, T><<<grid_of(ceil_div(s.tokens, kTokens)), kThreads, 0, stream>>>(k);
  });
  return launched("router_forward");
}

template <class T>
Result<void> router_backward(const RouterBackward<T>& k, cudaStream_t stream) {
  const RoutingSizes& s = k.sizes;
  if (s.tokens == 0) return {};
  MFSDP_TRY(check_experts(s.experts));
  with_slots(s.experts, [&](auto slots) {
    backward<slots.value, T><<<grid_of(ceil_div(s.tokens, kTokens)), kThreads, 0, stream>>>(k);
  });
  return launched("router_backward");
}

template Result<void> router_forward(const RouterForward<Bf16>&, cudaStream_t);
template Result<void> router_forward(const RouterForward<Fp16>&, cudaStream_t);
template Result<void> router_forward(const RouterForward<float>&, cudaStream_t);
template Result<void> router_backward(const RouterBackward<Bf16>&, cudaStream_t);
template Result<void> router_backward(const RouterBackward<Fp16>&, cudaStream_t);
template Result<void> router_backward(const RouterBackward<float>&, cudaStream_t);

}  // namespace mfsdp::cuda
