#include "core/runtime/step_report.hpp"
#include "gpu_backend/cuda/kernels/exact_sums.cuh"
#include "gpu_backend/cuda/kernels/grid_sum.cuh"
#include "gpu_backend/cuda/kernels/sums.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::Accumulate;
using kernels::ExactNormPartial;
using kernels::LossFinish;
using kernels::NormFinish;
using kernels::NormPartial;
using kernels::ZeroPadding;

constexpr int kThreads = 256;
constexpr int kUnroll = 4;  ///< packs per thread, all loaded before the first is used

/// Blocks process kUnroll * kThreads packs each; the last one also the elements after the last
/// pack.
template <class In, class Out, int N, bool kAdds>
__global__ void add(const Accumulate<In, Out> k) {
  const std::int64_t packs = k.count / N;
  const std::int64_t begin =
      static_cast<std::int64_t>(blockIdx.x) * kUnroll * kThreads + threadIdx.x;
  float in[kUnroll][N];
  float out[kUnroll][N];
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t at = begin + u * kThreads;
    if (at >= packs) continue;
    load_widened<N>(k.in + at * N, in[u]);
    if (kAdds) load_widened<N>(k.out + at * N, out[u]);
  }
#pragma unroll
  for (int u = 0; u < kUnroll; ++u) {
    const std::int64_t at = begin + u * kThreads;
    if (at >= packs) continue;
    if (kAdds)
#pragma unroll
      for (int i = 0; i < N; ++i) in[u][i] += out[u][i];
    store_narrowed<N>(k.out + at * N, in[u]);
  }
  const std::int64_t at = packs * N + threadIdx.x;
  if (blockIdx.x + 1 == gridDim.x && at < k.count)
    k.out[at] = narrowed<Out>(kAdds ? widened(k.out[at]) + widened(k.in[at]) : widened(k.in[at]));
}

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    sum_squares(const T* values, std::int64_t count, float* partial, GridScratch* scratch) {
  __shared__ double shared[kThreads / kWarp];
  const std::int64_t packs = count / N;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  double sum = 0;
  const auto square = [&](const float(&pack)[N]) {
    float squares = 0;
#pragma unroll
    for (int i = 0; i < N; ++i) squares += pack[i] * pack[i];
    sum += static_cast<double>(squares);
  };
  std::int64_t at = first;
  for (; at + (kUnroll - 1) * step < packs; at += kUnroll * step) {
    float pack[kUnroll][N];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) load_widened<N>(values + (at + u * step) * N, pack[u]);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) square(pack[u]);
  }
  for (; at < packs; at += step) {
    float pack[N];
    load_widened<N>(values + at * N, pack);
    square(pack);
  }
  if (const std::int64_t rest = packs * N + first; rest < count) {
    const float value = widened(values[rest]);
    sum += static_cast<double>(value * value);
  }
  TwoSums total{.first = block_sum(sum, shared)};
  if (grid_sum(total, scratch) && threadIdx.x == 0) *partial = static_cast<float>(total.first);
}

/// The sum over a warp of value(0), ..., value(count - 1).
template <class Value>
__device__ double lanes_sum(std::int64_t count, const Value& value) {
  double sum = 0;
  for (std::int64_t i = threadIdx.x; i < count; i += kWarp) sum += value(i);
  return warp_sum(sum);
}

__global__ void finish_loss(const float* sums, std::int64_t ranks, float* report,
                            const LossScaleState* scale) {
  const double loss = lanes_sum(ranks, [sums](std::int64_t i) -> double { return sums[2 * i]; });
  const double tokens =
      lanes_sum(ranks, [sums](std::int64_t i) -> double { return sums[2 * i + 1]; });
  if (threadIdx.x != 0) return;
  report[0] = tokens == 0 ? 0.0F : static_cast<float>(loss / tokens);
  report[1] = static_cast<float>(tokens);
  const double scaled = scale == nullptr ? tokens : tokens * static_cast<double>(scale->scale);
  report[2] = tokens == 0 ? 0.0F : static_cast<float>(1 / scaled);
  report[3] = 0;
}
static_assert(sizeof(LossReport) == 16);  // the four fields that are written

/// to += value, both at least 0. Reports a sum that exceeds 63 bits.
__device__ void add_whole(unsigned long long* to, std::int64_t value, const ExactOutlier& fault,
                          ExactOutlier* outlier) {
  const auto added = static_cast<unsigned long long>(value);
  if (static_cast<std::int64_t>(atomicAdd(to, added) + added) < 0) report(outlier, fault);
}

/// Sums of integers do not depend on the order.
__global__ void __launch_bounds__(kThreads)
    sum_whole_squares(const ExactNormPartial k, float per_step, ExactOutlier* outlier) {
  __shared__ unsigned long long of_block;
  if (threadIdx.x == 0) of_block = 0;
  __syncthreads();
  ExactOutlier fault{
      .fault = ExactFault::squares, .kernel = KernelKind::norm_partial, .exponent = k.exponent};
  std::int64_t sum = 0;
  const auto count = static_cast<std::int64_t>(k.values.size());
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < count;
       at += step) {
    const float steps = k.values.data()[at] * per_step;
    if (!(fabsf(steps) <= 0x1p24F) || steps != truncf(steps)) {
      fault.fault = ExactFault::gradient;
      fault.value = k.values.data()[at];
      report(outlier, fault);
      break;
    }
    const auto whole = static_cast<std::int64_t>(steps);
    sum += whole * whole;  // at most 2^48 each: a thread has fewer than 2^15 of them below 10^10
                           // values
  }
  add_whole(&of_block, sum, fault, outlier);
  __syncthreads();
  if (threadIdx.x == 0)
    add_whole(reinterpret_cast<unsigned long long*>(k.partial), static_cast<std::int64_t>(of_block),
              fault, outlier);
}

/// As finish_norm() of verify/cpu/kernels. The 1e-6 in the factor is PyTorch's (clip_grad_norm_).
__device__ void write_norm(double squares, const NormFinish& k) {
  float* const report = k.report;
  const double inverse_tokens = k.loss[2];
  const double norm = sqrt(squares) * inverse_tokens;
  const double limit = k.limit;
  report[0] = static_cast<float>(norm);
  report[1] = limit == 0 ? 1.0F : static_cast<float>(fmin(1.0, limit / (norm + 1e-6)));
  report[2] = isfinite(norm) ? 0.0F : 1.0F;
  report[3] = k.scale == nullptr ? 0.0F : k.scale->scale;
  if (k.scale != nullptr) *k.scale = next_loss_scale(*k.scale, !isfinite(norm), k.scale_window);
}
static_assert(sizeof(NormReport) == 16);

__global__ void finish_norm(const NormFinish k) {
  const float* const partials = k.partials.data();
  const double squares = lanes_sum(static_cast<std::int64_t>(k.partials.size()),
                                   [partials](std::int64_t i) -> double { return partials[i]; });
  if (threadIdx.x == 0) write_norm(squares, k);
}

__global__ void finish_exact_norm(const NormFinish k, double square_of_step,
                                  ExactOutlier* outlier) {
  std::int64_t sum = 0;
  bool overflows = false;
  for (std::size_t i = 0; i < k.exact_partials.size(); ++i) {
    const auto wide =
        static_cast<std::uint64_t>(sum) + static_cast<std::uint64_t>(k.exact_partials.data()[i]);
    sum = static_cast<std::int64_t>(wide);
    overflows |= sum < 0;
  }
  if (overflows)
    report(
        outlier,
        {.fault = ExactFault::squares, .kernel = KernelKind::norm_finish, .exponent = k.exponent});
  write_norm(static_cast<double>(sum) * square_of_step, k);
}

template <class In, class Out, int N>
void launch_add(const Accumulate<In, Out>& k, cudaStream_t stream) {
  const std::int64_t blocks =
      std::max<std::int64_t>(ceil_div(k.count / N, std::int64_t{kUnroll} * kThreads), 1);
  if (k.adds)
    add<In, Out, N, true><<<grid_of(blocks), kThreads, 0, stream>>>(k);
  else
    add<In, Out, N, false><<<grid_of(blocks), kThreads, 0, stream>>>(k);
}

}  // namespace

template <class In, class Out>
Result<void> accumulate(const Accumulate<In, Out>& k, cudaStream_t stream, ExactOutlier* outlier) {
  if (k.grid) {
    if constexpr (std::is_same_v<In, float> && std::is_same_v<Out, float>)
      return add_on_grid(k, KernelKind::accumulate, outlier, stream);
    else
      return expected_fp32(KernelKind::accumulate);
  }
  if (k.count == 0) return {};
  constexpr int N = std::min(kPack<In>, kPack<Out>);
  if (is_aligned({k.in}, N * sizeof(In)) && is_aligned({k.out}, N * sizeof(Out)))
    launch_add<In, Out, N>(k, stream);
  else
    launch_add<In, Out, 1>(k, stream);
  return launched("accumulate");
}

Result<void> zero_padding(const ZeroPadding& k, cudaStream_t stream) {
  for (const auto gap : k.gaps)
    MFSDP_TRY(check(cudaMemsetAsync(gap.data(), 0, gap.size(), stream), "cudaMemsetAsync",
                    "zero_padding"));
  return {};
}

Result<void> loss_finish(const LossFinish<float>& k, cudaStream_t stream) {
  finish_loss<<<1, kWarp, 0, stream>>>(k.sums.data(), static_cast<std::int64_t>(k.sums.size() / 2),
                                       k.report, k.scale);
  return launched("loss_finish");
}

template <class T>
Result<void> norm_partial(const NormPartial<T>& k, cudaStream_t stream) {
  MFSDP_LET(scratch, grid_scratch(k.workspace, "norm_partial", stream));
  constexpr int N = kPack<T>;
  const auto count = static_cast<std::int64_t>(k.values.size());
  const bool packs = is_aligned({k.values.data()}, 16);
  const std::int64_t items = packs ? count / N : count;
  const std::int64_t blocks = std::clamp<std::int64_t>(ceil_div(items, kThreads), 1, kSumBlocks);
  if (packs)
    sum_squares<T, N>
        <<<grid_of(blocks), kThreads, 0, stream>>>(k.values.data(), count, k.partial, scratch);
  else
    sum_squares<T, 1>
        <<<grid_of(blocks), kThreads, 0, stream>>>(k.values.data(), count, k.partial, scratch);
  return launched("norm_partial");
}

Result<void> exact_norm_partial(const ExactNormPartial& k, cudaStream_t stream,
                                ExactOutlier* outlier) {
  MFSDP_TRY(check_outlier(KernelKind::norm_partial, outlier));
  MFSDP_TRY(check(cudaMemsetAsync(k.partial, 0, sizeof *k.partial, stream), "cudaMemsetAsync",
                  "norm_partial"));
  const auto count = static_cast<std::int64_t>(k.values.size());
  const std::int64_t blocks = std::clamp<std::int64_t>(ceil_div(count, kThreads), 1, kSumBlocks);
  const float per_step = std::ldexp(1.0F, -static_cast<int>(k.exponent));
  sum_whole_squares<<<grid_of(blocks), kThreads, 0, stream>>>(k, per_step, outlier);
  return launched("norm_partial");
}

Result<void> norm_finish(const NormFinish& k, cudaStream_t stream, ExactOutlier* outlier) {
  if (!k.exact_partials.empty()) {
    MFSDP_TRY(check_outlier(KernelKind::norm_finish, outlier));
    finish_exact_norm<<<1, 1, 0, stream>>>(k, std::ldexp(1.0, static_cast<int>(2 * k.exponent)),
                                           outlier);
    return launched("norm_finish");
  }
  finish_norm<<<1, kWarp, 0, stream>>>(k);
  return launched("norm_finish");
}

template Result<void> accumulate(const Accumulate<Bf16, Bf16>&, cudaStream_t, ExactOutlier*);
template Result<void> accumulate(const Accumulate<Bf16, float>&, cudaStream_t, ExactOutlier*);
template Result<void> accumulate(const Accumulate<Fp16, Fp16>&, cudaStream_t, ExactOutlier*);
template Result<void> accumulate(const Accumulate<Fp16, float>&, cudaStream_t, ExactOutlier*);
template Result<void> accumulate(const Accumulate<float, Fp16>&, cudaStream_t, ExactOutlier*);
template Result<void> accumulate(const Accumulate<float, Bf16>&, cudaStream_t, ExactOutlier*);
template Result<void> accumulate(const Accumulate<float, float>&, cudaStream_t, ExactOutlier*);
template Result<void> norm_partial(const NormPartial<Bf16>&, cudaStream_t);
template Result<void> norm_partial(const NormPartial<float>&, cudaStream_t);

}  // namespace mfsdp::cuda
