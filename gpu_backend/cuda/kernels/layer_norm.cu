#include "gpu_backend/cuda/kernels/exact_sums.hpp"
#include "gpu_backend/cuda/kernels/norm.hpp"
#include "gpu_backend/cuda/kernels/row_block.cuh"

namespace mfsdp::cuda {
namespace {

using kernels::ColumnSums;
using kernels::LayerNormBackward;
using kernels::LayerNormForward;

constexpr int kMaxThreads = 1024;
constexpr int kMaxWarps = kMaxThreads / kWarp;
constexpr int kBackwardThreads = 512;  ///< at most, so that a thread has 128 registers

__device__ float centred(float x, float mean, float rstd) { return (x - mean) * rstd; }
/// The result is rounded once, later. Backward computes the same bits again.
__device__ float normed(float h, float weight, float bias) {
  return __fadd_rn(__fmul_rn(h, weight), bias);
}

/// A row lies in a block's registers, kVectors packs of N elements in each thread.
template <class T, int N, int kVectors>
__global__ void __launch_bounds__(kMaxThreads) forward_in_registers(const LayerNormForward<T> k) {
  __shared__ float shared[2][kMaxWarps];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * k.cols;
  const auto cols = static_cast<float>(k.cols);
  const auto col_of = [&](int v) { return static_cast<int>(threadIdx.x + v * blockDim.x) * N; };
  float x[kVectors][N];
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int col = col_of(v);
    if (col >= k.cols) continue;
    load_widened<N>(k.residual + row + col, x[v]);
    if (k.delta != nullptr) {
      float delta[N];
      load_widened<N>(k.delta + row + col, delta);
#pragma unroll
      for (int i = 0; i < N; ++i) x[v][i] += delta[i];
      const auto rounded = narrow_all<T, N>(x[v]);
      store<N>(k.residual_out + row + col, rounded);
      widen_all(rounded, x[v]);  // the norm is computed from the stored sum
    }
#pragma unroll
    for (int i = 0; i < N; ++i) sum += x[v][i];
  }
  const float mean = block_sum(sum, shared[0]) / cols;
  float squares = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (col_of(v) >= k.cols) continue;
#pragma unroll
    for (int i = 0; i < N; ++i) squares += (x[v][i] - mean) * (x[v][i] - mean);
  }
  const float rstd = 1 / sqrtf(block_sum(squares, shared[1]) / cols + k.epsilon);
  if (threadIdx.x == 0) {
    k.mean[blockIdx.x] = mean;
    k.rstd[blockIdx.x] = rstd;
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int col = col_of(v);
    if (col >= k.cols) continue;
    float weight[N];
    float bias[N];
    load_widened<N>(k.weight + col, weight);
    load_widened<N>(k.bias + col, bias);
#pragma unroll
    for (int i = 0; i < N; ++i) x[v][i] = normed(centred(x[v][i], mean, rstd), weight[i], bias[i]);
    store_narrowed<N>(k.normed + row + col, x[v]);
  }
}

/// Rows of any length and alignment, element by element.
template <class T>
__global__ void forward_any(const LayerNormForward<T> k) {
  __shared__ float shared[2][kMaxWarps];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * k.cols;
  const auto cols = static_cast<float>(k.cols);
  const T* const x = k.delta != nullptr ? k.residual_out : k.residual;
  float sum = 0;
  for (std::int64_t col = threadIdx.x; col < k.cols; col += blockDim.x) {
    if (k.delta != nullptr)
      k.residual_out[row + col] =
          narrowed<T>(widened(k.residual[row + col]) + widened(k.delta[row + col]));
    sum += widened(x[row + col]);  // written by this thread
  }
  const float mean = block_sum(sum, shared[0]) / cols;
  float squares = 0;
  for (std::int64_t col = threadIdx.x; col < k.cols; col += blockDim.x) {
    const float difference = widened(x[row + col]) - mean;
    squares += difference * difference;
  }
  const float rstd = 1 / sqrtf(block_sum(squares, shared[1]) / cols + k.epsilon);
  if (threadIdx.x == 0) {
    k.mean[blockIdx.x] = mean;
    k.rstd[blockIdx.x] = rstd;
  }
  for (std::int64_t col = threadIdx.x; col < k.cols; col += blockDim.x)
    k.normed[row + col] = narrowed<T>(normed(centred(widened(x[row + col]), mean, rstd),
                                             widened(k.weight[col]), widened(k.bias[col])));
}

/// Groups' parts of the sums of both gradients, except the first group's: [groups - 1, 2, cols].
extern __shared__ float sums_of_groups[];

/// Block b processes the rows b, b + partial_rows, ...; `grouped`: as many at once as it has groups
/// of threads (threadIdx.y). The sums of both gradients stay in registers. The next row is loaded
/// while this one is summed, if registers suffice for both.
template <class T, int N, int kVectors, bool grouped>
__global__ void __launch_bounds__(kBackwardThreads)
    backward_in_registers(const LayerNormBackward<T> k) {
  constexpr bool kAhead = kVectors == 1;
  __shared__ float shared[2][2][kMaxWarps];  // double-buffered, so that rows need no barrier
                                             // between them
  const int own_sums = grouped ? static_cast<int>(threadIdx.y * blockDim.x) / kWarp : 0;
  const std::int64_t step = grouped ? k.partial_rows * blockDim.y : k.partial_rows;
  const auto cols = static_cast<int>(k.cols);
  const auto col_of = [&](int v) { return static_cast<int>(threadIdx.x + v * blockDim.x) * N; };
  Pack<T, N> dy[kVectors];
  Pack<T, N> x[kVectors];
  Pack<T, N> before[kVectors];
  float of_weight[kVectors][N] = {};
  float of_bias[kVectors][N] = {};
  const auto fetch = [&](std::int64_t row) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (col_of(v) >= cols) continue;
      const std::int64_t at = row * cols + col_of(v);
      dy[v] = load<T, N>(k.d_normed + at);
      x[v] = load<T, N>(k.input + at);
      if (k.adds) before[v] = load<T, N>(k.d_residual + at);
    }
  };
  Pack<T, N> weight[kVectors];
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
    if (col_of(v) < cols) weight[v] = load<T, N>(k.weight + col_of(v));
  std::int64_t row = blockIdx.x + (grouped ? k.partial_rows * threadIdx.y : 0);
  if (kAhead && row < k.rows) fetch(row);
  // As many times for all groups, because they synchronise.
  std::int64_t first_row = blockIdx.x;
  for (int turn = 0; (grouped ? first_row : row) < k.rows; turn ^= 1, first_row += step) {
    const bool is_row = !grouped || row < k.rows;
    if (!kAhead && is_row) fetch(row);
    const float mean = is_row ? k.mean[row] : 0;
    const float rstd = is_row ? k.rstd[row] : 0;
    float sum_u = 0;
    float sum_uh = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!is_row || col_of(v) >= cols) continue;
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float u = element(weight[v], i) * element(dy[v], i);
        sum_u += u;
        sum_uh += u * centred(element(x[v], i), mean, rstd);
      }
    }
    Pack<T, N> this_dy[kVectors];
    Pack<T, N> this_x[kVectors];
    Pack<T, N> this_before[kVectors];
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      this_dy[v] = dy[v];
      this_x[v] = x[v];
      this_before[v] = before[v];
    }
    const std::int64_t this_row = row;
    row += step;
    if (kAhead && row < k.rows) fetch(row);
    const float mean_u = block_sum(sum_u, shared[turn][0] + own_sums) / static_cast<float>(cols);
    const float mean_uh = block_sum(sum_uh, shared[turn][1] + own_sums) / static_cast<float>(cols);
    if (!is_row) continue;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (col_of(v) >= cols) continue;
      const std::int64_t at = this_row * cols + col_of(v);
      float dx[N];
      float h[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float gradient = element(this_dy[v], i);
        h[i] = centred(element(this_x[v], i), mean, rstd);
        of_weight[v][i] += gradient * h[i];
        of_bias[v][i] += gradient;
        dx[i] = rstd * (element(weight[v], i) * gradient - mean_u - h[i] * mean_uh);
        if (k.adds) dx[i] += element(this_before[v], i);
      }
      store_narrowed<N>(k.d_residual + at, dx);
      if (k.normed == nullptr) continue;
      const auto bias = load<T, N>(k.bias + col_of(v));
#pragma unroll
      for (int i = 0; i < N; ++i) h[i] = normed(h[i], element(weight[v], i), element(bias, i));
      store_narrowed<N>(k.normed + at, h);
    }
  }
  if constexpr (grouped) {
    const auto part_of = [&](unsigned group, int v) {
      return sums_of_groups + 2 * (group - 1) * cols + col_of(v);
    };
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      if (threadIdx.y > 0 && col_of(v) < cols)
#pragma unroll
        for (int i = 0; i < N; ++i) {
          part_of(threadIdx.y, v)[i] = of_weight[v][i];
          part_of(threadIdx.y, v)[cols + i] = of_bias[v][i];
        }
    __syncthreads();
    if (threadIdx.y > 0) return;
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      for (unsigned group = 1; group < blockDim.y && col_of(v) < cols; ++group)
#pragma unroll
        for (int i = 0; i < N; ++i) {
          of_weight[v][i] += part_of(group, v)[i];
          of_bias[v][i] += part_of(group, v)[cols + i];
        }
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if (col_of(v) >= cols) continue;
    float* const weights = k.partials + blockIdx.x * k.cols + col_of(v);
    store<N>(weights, narrow_all<float, N>(of_weight[v]));
    store<N>(weights + k.partial_rows * k.cols, narrow_all<float, N>(of_bias[v]));
  }
}

/// Rows of any length and alignment; the gradients are summed in memory.
template <class T>
__global__ void backward_any(const LayerNormBackward<T> k) {
  __shared__ float shared[2][2][kMaxWarps];
  const auto cols = static_cast<float>(k.cols);
  float* const of_weight = k.partials + blockIdx.x * k.cols;
  float* const of_bias = of_weight + k.partial_rows * k.cols;
  for (std::int64_t col = threadIdx.x; col < k.cols; col += blockDim.x)
    of_weight[col] = of_bias[col] = 0;
  int turn = 0;
  for (std::int64_t row = blockIdx.x; row < k.rows; row += k.partial_rows, turn ^= 1) {
    const std::int64_t at = row * k.cols;
    const float mean = k.mean[row];
    const float rstd = k.rstd[row];
    float sum_u = 0;
    float sum_uh = 0;
    for (std::int64_t col = threadIdx.x; col < k.cols; col += blockDim.x) {
      const float u = widened(k.weight[col]) * widened(k.d_normed[at + col]);
      sum_u += u;
      sum_uh += u * centred(widened(k.input[at + col]), mean, rstd);
    }
    const float mean_u = block_sum(sum_u, shared[turn][0]) / cols;
    const float mean_uh = block_sum(sum_uh, shared[turn][1]) / cols;
    for (std::int64_t col = threadIdx.x; col < k.cols; col += blockDim.x) {
      const float gradient = widened(k.d_normed[at + col]);
      const float weight = widened(k.weight[col]);
      const float h = centred(widened(k.input[at + col]), mean, rstd);
      const float before = k.adds ? widened(k.d_residual[at + col]) : 0.0F;
      of_weight[col] += gradient * h;
      of_bias[col] += gradient;
      k.d_residual[at + col] =
          narrowed<T>(before + rstd * (weight * gradient - mean_u - h * mean_uh));
      if (k.normed != nullptr)
        k.normed[at + col] = narrowed<T>(normed(h, weight, widened(k.bias[col])));
    }
  }
}

/// `most_threads`: of a block with several rows at once.
template <class T>
Result<void> launch_backward(const LayerNormBackward<T>& k, int most_threads, cudaStream_t stream) {
  constexpr int N = kPack<T>;
  const bool aligned =
      is_aligned({k.d_normed, k.input, k.weight, k.bias, k.d_residual, k.normed, k.partials}, 16);
  const RowBlock block = row_block<T>(k.cols, kBackwardThreads, kBackwardThreads, aligned);
  with_vectors(block.vectors, [&](auto vectors) {
    const dim3 grid = grid_of(k.partial_rows);
    const int groups = most_threads / block.threads;
    if (vectors() == 1 && groups > 1) {
      const auto parts = static_cast<std::size_t>(2 * (groups - 1) * k.cols) * sizeof(float);
      backward_in_registers<T, N, 1, true><<<grid, dim3(block.threads, groups), parts, stream>>>(k);
    } else {
      backward_in_registers<T, N, vectors(), false><<<grid, block.threads, 0, stream>>>(k);
    }
  });
  if (block.vectors == 0) backward_any<<<grid_of(k.partial_rows), 256, 0, stream>>>(k);
  return launched("layer_norm_backward");
}

/// The rows of partials between the first and the last belong to one piece; all pieces have equally
/// many.
template <class T>
Result<void> exact_backward(const LayerNormBackward<T>& k, cudaStream_t stream,
                            ExactOutlier* outlier) {
  const std::int64_t piece = k.pieces.rows;
  const std::int64_t partial_rows = std::min(piece, k.partial_rows) - 1;
  MFSDP_TRY(check_exact_rows("layer_norm_backward", partial_rows));
  float* const after_first = k.partials + k.cols;
  float* const last = k.partials + (2 * k.partial_rows - 1) * k.cols;
  for (std::int64_t begin = 0; begin < k.rows; begin += piece) {
    LayerNormBackward<T> part = k;
    part.rows = piece;
    part.partial_rows = partial_rows;
    part.d_normed += begin * k.cols;
    part.input += begin * k.cols;
    part.mean += begin;
    part.rstd += begin;
    part.d_residual += begin * k.cols;
    if (part.normed != nullptr) part.normed += begin * k.cols;
    part.partials = after_first;
    part.pieces = {};
    MFSDP_TRY(launch_backward(part, 0, stream));  // the order of sums is that of one group
    ColumnSums<float, float> sums{.rows = partial_rows,
                                  .cols = k.cols,
                                  .in = after_first,
                                  .adds = begin > 0,
                                  .out = k.partials,
                                  .pieces = {.rows = partial_rows, .grid = k.pieces.grid}};
    MFSDP_TRY(sum_on_grid(sums, KernelKind::layer_norm_backward, outlier, stream));
    sums.in += partial_rows * k.cols;
    sums.out = last;
    MFSDP_TRY(sum_on_grid(sums, KernelKind::layer_norm_backward, outlier, stream));
  }
  return zero(after_first, last - after_first, "layer_norm_backward", stream);
}

}  // namespace

template <class T>
Result<void> layer_norm_forward(const LayerNormForward<T>& k, cudaStream_t stream) {
  if (k.rows == 0) return {};
  constexpr int N = kPack<T>;
  const bool aligned =
      is_aligned({k.residual, k.delta, k.weight, k.bias, k.residual_out, k.normed}, 16);
  const RowBlock block = row_block<T>(k.cols, 256, kMaxThreads, aligned);
  with_vectors(block.vectors, [&](auto vectors) {
    forward_in_registers<T, N, vectors()><<<grid_of(k.rows), block.threads, 0, stream>>>(k);
  });
  if (block.vectors == 0) forward_any<<<grid_of(k.rows), 256, 0, stream>>>(k);
  return launched("layer_norm_forward");
}

template <class T>
Result<void> layer_norm_backward(const LayerNormBackward<T>& k, cudaStream_t stream,
                                 ExactOutlier* outlier) {
  if (k.pieces.grid) return exact_backward(k, stream, outlier);
  return launch_backward(k, kBackwardThreads, stream);
}

template Result<void> layer_norm_forward(const LayerNormForward<Bf16>&, cudaStream_t);
template Result<void> layer_norm_forward(const LayerNormForward<Fp16>&, cudaStream_t);
template Result<void> layer_norm_forward(const LayerNormForward<float>&, cudaStream_t);
template Result<void> layer_norm_backward(const LayerNormBackward<Bf16>&, cudaStream_t,
                                          ExactOutlier*);
template Result<void> layer_norm_backward(const LayerNormBackward<Fp16>&, cudaStream_t,
                                          ExactOutlier*);
template Result<void> layer_norm_backward(const LayerNormBackward<float>&, cudaStream_t,
                                          ExactOutlier*);

}  // namespace mfsdp::cuda
