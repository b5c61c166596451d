#include "gpu_backend/cuda/kernels/exact_sums.cuh"
#include "gpu_backend/cuda/kernels/exact_sums.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::Accumulate;
using kernels::ColumnSums;

constexpr int kThreads = 256;

__global__ void add(const Accumulate<float, float> k, const GridSteps grid) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at < k.count) k.out[at] = grid.added(k.adds ? k.out[at] : 0.0F, k.in[at]);
}

/// One thread per column: the order is the same for any number of pieces.
template <class T>
__global__ void sum_pieces(const ColumnSums<T, float> k, const GridSteps grid) {
  const std::int64_t col = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
  if (col >= k.cols) return;
  float sum = k.adds ? k.out[col] : 0.0F;
  for (std::int64_t begin = 0; begin < k.rows; begin += k.pieces.rows) {
    float piece = 0;
#pragma unroll 8
    for (std::int64_t row = begin; row < begin + k.pieces.rows; ++row)
      piece += widened(k.in[row * k.cols + col]);
    sum = grid.added(sum, piece);
  }
  k.out[col] = sum;
}

}  // namespace

Result<void> add_on_grid(const Accumulate<float, float>& k, KernelKind kernel,
                         ExactOutlier* outlier, cudaStream_t stream) {
  MFSDP_LET(grid, grid_steps(*k.grid, kernel, outlier));
  if (k.count == 0) return {};
  add<<<grid_of(ceil_div(k.count, kThreads)), kThreads, 0, stream>>>(k, grid);
  return launched(to_string(kernel));
}

template <class T>
Result<void> sum_on_grid(const ColumnSums<T, float>& k, KernelKind kernel, ExactOutlier* outlier,
                         cudaStream_t stream) {
  MFSDP_LET(grid, grid_steps(*k.pieces.grid, kernel, outlier));
  if (k.cols == 0) return {};
  sum_pieces<<<grid_of(ceil_div(k.cols, kWarp)), kWarp, 0, stream>>>(k, grid);
  return launched(to_string(kernel));
}

Result<void> check_outlier(KernelKind kernel, const ExactOutlier* outlier) {
  if (outlier != nullptr) return {};
  return fail("kernel " + std::string(to_string(kernel)),
              "expected a place for what --exact-sums cannot keep exact");
}

Result<void> check_exact_rows(std::string_view kernel, std::int64_t partial_rows) {
  if (partial_rows > 0) return {};
  return fail("kernel " + std::string(kernel),
              "--exact-sums on CUDA expects pieces and partials of at least 2 rows",
              Fault::environment);
}

Result<void> zero(float* to, std::int64_t count, std::string_view kernel, cudaStream_t stream) {
  return check(cudaMemsetAsync(to, 0, static_cast<std::size_t>(count) * sizeof *to, stream),
               "cudaMemsetAsync", kernel);
}

Result<void> expected_fp32(KernelKind kernel) {
  return fail("kernel " + std::string(to_string(kernel)), "--exact-sums expects gradients in fp32");
}

template Result<void> sum_on_grid(const ColumnSums<Bf16, float>&, KernelKind, ExactOutlier*,
                                  cudaStream_t);
template Result<void> sum_on_grid(const ColumnSums<Fp16, float>&, KernelKind, ExactOutlier*,
                                  cudaStream_t);
template Result<void> sum_on_grid(const ColumnSums<float, float>&, KernelKind, ExactOutlier*,
                                  cudaStream_t);

}  // namespace mfsdp::cuda
