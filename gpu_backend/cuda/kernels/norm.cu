#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/exact_sums.hpp"
#include "gpu_backend/cuda/kernels/fp8.cuh"
#include "gpu_backend/cuda/kernels/norm.hpp"
#include "gpu_backend/cuda/kernels/row_block.cuh"

namespace mfsdp::cuda {
namespace {

using kernels::ColumnSums;
using kernels::RmsNormBackward;
using kernels::RmsNormForward;

constexpr int kMaxThreads = 1024;
constexpr int kMaxWarps = kMaxThreads / kWarp;

/// Rounds the norm's output once. Backward computes the same bits again.
__device__ float normed(float x, float rstd, float weight) { return x * rstd * weight; }

/// A row lies in a block's registers, kVectors packs of N elements in each thread.
template <class T, int N, int kVectors>
__global__ void __launch_bounds__(kMaxThreads) forward_in_registers(const RmsNormForward<T> k) {
  __shared__ float shared[kMaxWarps];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * k.cols;
  float x[kVectors][N];
  float squares = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int col = static_cast<int>(threadIdx.x + v * blockDim.x) * N;
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
    for (int i = 0; i < N; ++i) squares += x[v][i] * x[v][i];
  }
  const float mean = block_sum(squares, shared) / static_cast<float>(k.cols);
  const float rstd = 1 / sqrtf(mean + k.epsilon);
  if (threadIdx.x == 0) k.rstd[blockIdx.x] = rstd;
  Largest<T> largest;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int col = static_cast<int>(threadIdx.x + v * blockDim.x) * N;
    if (col >= k.cols) continue;
    float weight[N];
    load_widened<N>(k.weight + col, weight);
#pragma unroll
    for (int i = 0; i < N; ++i) x[v][i] = normed(x[v][i], rstd, k.weight_offset + weight[i]);
    if (k.skip != nullptr) {
      float skip[N];
      load_widened<N>(k.skip + row + col, skip);
#pragma unroll
      for (int i = 0; i < N; ++i) x[v][i] += skip[i];
    }
    const auto made = narrow_all<T, N>(x[v]);
    store<N>(k.normed + row + col, made);
    if (k.amax != nullptr) largest.add(made);
  }
  if (k.amax != nullptr) raise_to(largest.bits(), k.amax);
}

/// Rows of any length and alignment, element by element.
template <class T>
__global__ void forward_any(const RmsNormForward<T> k) {
  __shared__ float shared[kMaxWarps];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * k.cols;
  const T* const x = k.delta != nullptr ? k.residual_out : k.residual;
  float squares = 0;
  for (std::int64_t col = threadIdx.x; col < k.cols; col += blockDim.x) {
    if (k.delta != nullptr)
      k.residual_out[row + col] =
          narrowed<T>(widened(k.residual[row + col]) + widened(k.delta[row + col]));
    const float value = widened(x[row + col]);  // written by this thread
    squares += value * value;
  }
  const float mean = block_sum(squares, shared) / static_cast<float>(k.cols);
  const float rstd = 1 / sqrtf(mean + k.epsilon);
  if (threadIdx.x == 0) k.rstd[blockIdx.x] = rstd;
  Largest<T> largest;
  for (std::int64_t col = threadIdx.x; col < k.cols; col += blockDim.x) {
    const float value =
        normed(widened(x[row + col]), rstd, k.weight_offset + widened(k.weight[col]));
    const float skip = k.skip != nullptr ? widened(k.skip[row + col]) : 0.0F;
    const float made[1] = {k.skip != nullptr ? value + skip : value};
    const auto rounded = narrow_all<T, 1>(made);
    store<1>(k.normed + row + col, rounded);
    largest.add(rounded);
  }
  if (k.amax != nullptr) raise_to(largest.bits(), k.amax);
}

constexpr int kBackwardThreads = 512;  ///< at most, so that a thread has 128 registers

/// Threads of a block whose rows are narrow: groups of threads, of a row each, fill it.
constexpr int kGroupedThreads = 512;
/// The groups' parts of the weight gradient, except the first group's: [groups - 1, cols].
extern __shared__ float parts_of_groups[];

/// Block b processes the rows b, b + partial_rows, ...; `grouped`: as many at once as it has groups of
/// threads (threadIdx.y). Their weight gradient stays in registers. The next row is loaded while this one is
/// summed, if registers suffice for both.
template <class T, int N, int kVectors, bool grouped>
__global__ void __launch_bounds__(kBackwardThreads)
    backward_in_registers(const RmsNormBackward<T> k) {
  constexpr bool kAhead = kVectors <= 2;
  __shared__ float shared[2][kMaxWarps];  // double-buffered, so that a row needs one barrier
  const auto cols = static_cast<int>(k.cols);
  const auto col_of = [&](int v) { return static_cast<int>(threadIdx.x + v * blockDim.x) * N; };
  const int own_sums = grouped ? static_cast<int>(threadIdx.y * blockDim.x) / kWarp : 0;
  const std::int64_t step = grouped ? k.partial_rows * blockDim.y : k.partial_rows;
  Pack<T, N> dy[kVectors];
  Pack<T, N> x[kVectors];
  Pack<T, N> before[kVectors];
  float partial[kVectors][N] = {};
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
  float rstd = 0;
  if (kAhead && row < k.rows) {
    fetch(row);
    rstd = k.rstd[row];
  }
  // As many times for all groups, because they synchronise.
  std::int64_t first_row = blockIdx.x;
  Largest<T> largest;
  for (int turn = 0; (grouped ? first_row : row) < k.rows; turn ^= 1, first_row += step) {
    const bool is_row = !grouped || row < k.rows;
    if (!kAhead && is_row) {
      fetch(row);
      rstd = k.rstd[row];
    }
    float dot = 0;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (!is_row || col_of(v) >= cols) continue;
#pragma unroll
      for (int i = 0; i < N; ++i)
        dot += (k.weight_offset + element(weight[v], i)) * element(dy[v], i) * element(x[v], i);
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
    const float this_rstd = rstd;
    const std::int64_t this_row = row;
    row += step;
    if (kAhead && row < k.rows) {
      fetch(row);
      rstd = k.rstd[row];
    }
    const float shrink = block_sum(dot, shared[turn] + own_sums) * this_rstd * this_rstd *
                         this_rstd / static_cast<float>(k.cols);
    if (!is_row) continue;
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      if (col_of(v) >= cols) continue;
      const std::int64_t at = this_row * cols + col_of(v);
      float dx[N];
      float again[N];
#pragma unroll
      for (int i = 0; i < N; ++i) {
        const float gradient = element(this_dy[v], i);
        const float input = element(this_x[v], i);
        const float w = k.weight_offset + element(weight[v], i);
        partial[v][i] += gradient * input * this_rstd;
        dx[i] = this_rstd * w * gradient - input * shrink;
        if (k.adds) dx[i] += element(this_before[v], i);
        again[i] = normed(input, this_rstd, w);
      }
      const auto made = narrow_all<T, N>(dx);
      store<N>(k.d_residual + at, made);
      if (k.amax != nullptr) largest.add(made);
      if (k.normed != nullptr) store_narrowed<N>(k.normed + at, again);
    }
  }
  if (k.amax != nullptr) raise_to(largest.bits(), k.amax);
  if constexpr (grouped) {
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      if (threadIdx.y > 0 && col_of(v) < cols)
#pragma unroll
        for (int i = 0; i < N; ++i)
          parts_of_groups[(threadIdx.y - 1) * cols + col_of(v) + i] = partial[v][i];
    __syncthreads();
    if (threadIdx.y > 0) return;
#pragma unroll
    for (int v = 0; v < kVectors; ++v)
      for (unsigned group = 1; group < blockDim.y && col_of(v) < cols; ++group)
#pragma unroll
        for (int i = 0; i < N; ++i)
          partial[v][i] += parts_of_groups[(group - 1) * cols + col_of(v) + i];
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v)
    if (col_of(v) < cols)
#pragma unroll
      for (int i = 0; i < N; i += 4)
        *reinterpret_cast<float4*>(k.partials + blockIdx.x * k.cols + col_of(v) + i) =
            make_float4(partial[v][i], partial[v][i + 1], partial[v][i + 2], partial[v][i + 3]);
}

/// Rows of any length and alignment; the weight's gradient is summed in memory.
template <class T>
__global__ void backward_any(const RmsNormBackward<T> k) {
  __shared__ float shared[2][kMaxWarps];
  float* const partial = k.partials + blockIdx.x * k.cols;
  for (std::int64_t col = threadIdx.x; col < k.cols; col += blockDim.x) partial[col] = 0;
  int turn = 0;
  Largest<T> largest;
  for (std::int64_t row = blockIdx.x; row < k.rows; row += k.partial_rows, turn ^= 1) {
    const std::int64_t at = row * k.cols;
    const float rstd = k.rstd[row];
    float dot = 0;
    for (std::int64_t col = threadIdx.x; col < k.cols; col += blockDim.x)
      dot += (k.weight_offset + widened(k.weight[col])) * widened(k.d_normed[at + col]) *
             widened(k.input[at + col]);
    const float shrink =
        block_sum(dot, shared[turn]) * rstd * rstd * rstd / static_cast<float>(k.cols);
    for (std::int64_t col = threadIdx.x; col < k.cols; col += blockDim.x) {
      const float gradient = widened(k.d_normed[at + col]);
      const float input = widened(k.input[at + col]);
      const float weight = k.weight_offset + widened(k.weight[col]);
      const float before = k.adds ? widened(k.d_residual[at + col]) : 0.0F;
      partial[col] += gradient * input * rstd;
      const float dx[1] = {before + (rstd * weight * gradient - input * shrink)};
      const auto made = narrow_all<T, 1>(dx);
      store<1>(k.d_residual + at + col, made);
      if (k.amax != nullptr) largest.add(made);
      if (k.normed != nullptr) k.normed[at + col] = narrowed<T>(normed(input, rstd, weight));
    }
  }
  if (k.amax != nullptr) raise_to(largest.bits(), k.amax);
}

// ---- column sums -------------------------------------------------------------------------------

constexpr int kColumnThreads = 128;

/// partials[p] = sum of the rows p, p + partial_rows, ...
template <class T, class G, int N>
__global__ void first_stage(const ColumnSums<T, G> k) {
  const std::int64_t col = (static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N;
  if (col >= k.cols) return;
  float sum[N] = {};
#pragma unroll 8
  for (std::int64_t row = blockIdx.y; row < k.rows; row += k.partial_rows) {
    float values[N];
    load_widened<N>(k.in + row * k.cols + col, values);
#pragma unroll
    for (int i = 0; i < N; ++i) sum[i] += values[i];
  }
#pragma unroll
  for (int i = 0; i < N; ++i) k.partials[blockIdx.y * k.cols + col + i] = sum[i];
}

constexpr int kSumLanes = 32;  ///< threads that share a column's rows

/// out = (out +) the sums of the columns of `in`, 32 columns a block.
template <class T, class G>
__global__ void __launch_bounds__(kSumLanes* kWarp)
    last_stage(std::int64_t rows, std::int64_t cols, const T* in, bool adds, G* out) {
  __shared__ float sums[kSumLanes][kWarp];
  const std::int64_t col = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  float sum = 0;
  if (col < cols) {
#pragma unroll 8
    for (std::int64_t row = threadIdx.y; row < rows; row += kSumLanes)
      sum += widened(in[row * cols + col]);
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || col >= cols) return;
#pragma unroll
  for (int lane = 1; lane < kSumLanes; ++lane) sum += sums[lane][threadIdx.x];
  out[col] = narrowed<G>(adds ? widened(out[col]) + sum : sum);
}

template <class T, class G>
Result<void> sum_rows(std::int64_t rows, std::int64_t cols, const T* in, bool adds, G* out,
                      cudaStream_t stream) {
  last_stage<<<grid_of(ceil_div(cols, kWarp)), dim3(kWarp, kSumLanes), 0, stream>>>(rows, cols, in,
                                                                                    adds, out);
  return launched("column_sums");
}

}  // namespace

template <class T>
Result<void> rms_norm_forward(const RmsNormForward<T>& k, cudaStream_t stream) {
  MFSDP_TRY(begin_amax(k.amax, "rms_norm_forward", stream));
  if (k.rows == 0) return {};
  constexpr int N = kPack<T>;
  const bool aligned =
      is_aligned({k.residual, k.delta, k.weight, k.skip, k.residual_out, k.normed}, 16);
  const RowBlock block = row_block<T>(k.cols, 256, kMaxThreads, aligned);
  with_vectors(block.vectors, [&](auto vectors) {
    forward_in_registers<T, N, vectors()><<<grid_of(k.rows), block.threads, 0, stream>>>(k);
  });
  if (block.vectors == 0) forward_any<<<grid_of(k.rows), 256, 0, stream>>>(k);
  return launched("rms_norm_forward");
}

namespace {

/// `grouped_threads`: of a block with several rows at once, at most.
template <class T>
Result<void> launch_backward(const RmsNormBackward<T>& k, int grouped_threads,
                             cudaStream_t stream) {
  constexpr int N = kPack<T>;
  const bool aligned =
      is_aligned({k.d_normed, k.input, k.weight, k.d_residual, k.normed, k.partials}, 16);
  const RowBlock block = row_block<T>(k.cols, kBackwardThreads, kBackwardThreads, aligned);
  with_vectors(block.vectors, [&](auto vectors) {
    const dim3 grid = grid_of(k.partial_rows);
    const int groups = grouped_threads / block.threads;
    if (vectors() == 1 && groups > 1) {
      constexpr auto kKernel = backward_in_registers<T, N, 1, true>;
      prefer_cache<kKernel>();
      const auto parts = static_cast<std::size_t>((groups - 1) * k.cols) * sizeof(float);
      kKernel<<<grid, dim3(block.threads, groups), parts, stream>>>(k);
    } else {
      constexpr auto kKernel = backward_in_registers<T, N, vectors(), false>;
      prefer_cache<kKernel>();
      kKernel<<<grid, block.threads, 0, stream>>>(k);
    }
  });
  if (block.vectors == 0) backward_any<<<grid_of(k.partial_rows), 256, 0, stream>>>(k);
  return launched("rms_norm_backward");
}

/// The rows of partials after the first belong to one piece; all pieces have equally many.
template <class T>
Result<void> exact_rms_norm_backward(const RmsNormBackward<T>& k, cudaStream_t stream,
                                     ExactOutlier* outlier) {
  const std::int64_t piece = k.pieces.rows;
  const std::int64_t partial_rows = std::min(piece, k.partial_rows) - 1;
  MFSDP_TRY(check_exact_rows("rms_norm_backward", partial_rows));
  for (std::int64_t begin = 0; begin < k.rows; begin += piece) {
    RmsNormBackward<T> part = k;
    part.rows = piece;
    part.partial_rows = partial_rows;
    part.d_normed += begin * k.cols;
    part.input += begin * k.cols;
    part.rstd += begin;
    part.d_residual += begin * k.cols;
    if (part.normed != nullptr) part.normed += begin * k.cols;
    part.partials += k.cols;
    part.pieces = {};
    MFSDP_TRY(launch_backward(part, 0, stream));  // the order of sums is that of one group
    MFSDP_TRY(sum_on_grid(
        ColumnSums<float, float>{.rows = partial_rows,
                                 .cols = k.cols,
                                 .in = part.partials,
                                 .adds = begin > 0,
                                 .out = k.partials,
                                 .pieces = {.rows = partial_rows, .grid = k.pieces.grid}},
        KernelKind::rms_norm_backward, outlier, stream));
  }
  return zero(k.partials + k.cols, (k.partial_rows - 1) * k.cols, "rms_norm_backward", stream);
}

}  // namespace

template <class T>
Result<void> rms_norm_backward(const RmsNormBackward<T>& k, cudaStream_t stream,
                               ExactOutlier* outlier) {
  MFSDP_TRY(begin_amax(k.amax, "rms_norm_backward", stream));
  if (k.pieces.grid) return exact_rms_norm_backward(k, stream, outlier);
  return launch_backward(k, kGroupedThreads, stream);
}

template <class T, class G>
Result<void> column_sums(const ColumnSums<T, G>& k, cudaStream_t stream, ExactOutlier* outlier) {
  if (k.pieces.grid) {
    const auto kernel =
        k.partials == nullptr ? KernelKind::norm_weight_grad : KernelKind::bias_grad;
    if constexpr (std::is_same_v<G, float>)
      return sum_on_grid(k, kernel, outlier, stream);
    else
      return expected_fp32(kernel);
  }
  if (k.cols == 0) return {};
  if (k.partials == nullptr) return sum_rows(k.rows, k.cols, k.in, k.adds, k.out, stream);
  constexpr int N = kPack<T>;
  const bool packs = k.cols % N == 0 && is_aligned({k.in}, 16);
  const auto first = [&](auto n) {
    const std::int64_t threads = ceil_div(k.cols, n());
    first_stage<T, G, n()>
        <<<grid_of(ceil_div(threads, kColumnThreads), k.partial_rows), kColumnThreads, 0, stream>>>(
            k);
  };
  if (packs)
    first(std::integral_constant<int, N>{});
  else
    first(std::integral_constant<int, 1>{});
  MFSDP_TRY(launched("bias_grad"));
  return sum_rows(k.partial_rows, k.cols, k.partials, k.adds, k.out, stream);
}

template Result<void> rms_norm_forward(const RmsNormForward<Bf16>&, cudaStream_t);
template Result<void> rms_norm_forward(const RmsNormForward<Fp16>&, cudaStream_t);
template Result<void> rms_norm_forward(const RmsNormForward<float>&, cudaStream_t);
template Result<void> rms_norm_backward(const RmsNormBackward<Bf16>&, cudaStream_t, ExactOutlier*);
template Result<void> rms_norm_backward(const RmsNormBackward<Fp16>&, cudaStream_t, ExactOutlier*);
template Result<void> rms_norm_backward(const RmsNormBackward<float>&, cudaStream_t, ExactOutlier*);
template Result<void> column_sums(const ColumnSums<Bf16, Bf16>&, cudaStream_t, ExactOutlier*);
template Result<void> column_sums(const ColumnSums<Bf16, float>&, cudaStream_t, ExactOutlier*);
template Result<void> column_sums(const ColumnSums<Fp16, Fp16>&, cudaStream_t, ExactOutlier*);
template Result<void> column_sums(const ColumnSums<Fp16, float>&, cudaStream_t, ExactOutlier*);
template Result<void> column_sums(const ColumnSums<float, Fp16>&, cudaStream_t, ExactOutlier*);
template Result<void> column_sums(const ColumnSums<float, Bf16>&, cudaStream_t, ExactOutlier*);
template Result<void> column_sums(const ColumnSums<float, float>&, cudaStream_t, ExactOutlier*);

}  // namespace mfsdp::cuda
