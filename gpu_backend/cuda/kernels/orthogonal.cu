#include <algorithm>

#include "core/plan/kernel_spec.hpp"
#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/grid_sum.cuh"
#include "gpu_backend/cuda/kernels/orthogonal.hpp"

namespace mfsdp::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kTile = 32;                    ///< side of the square that a block transposes
constexpr int kTileRows = kThreads / kTile;  ///< rows that its threads process at once

template <class T>
__global__ void __launch_bounds__(kThreads)
    sum_of_squares(const T* values, std::int64_t count, GridScratch* scratch, float* inverse) {
  __shared__ double shared[kThreads / kWarp];
  double sum = 0;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step) {
    const double value = widened(values[i]);
    sum += value * value;
  }
  TwoSums all;
  all.first = block_sum(sum, shared);
  if (grid_sum(all, scratch) && threadIdx.x == 0)
    *inverse = static_cast<float>(1 / (sqrt(all.first) + 1e-30));
}

/// to[i, j] = factor * from[i, j], both [rows, cols]; `inverse`: an optional second factor.
template <class From, class To>
__global__ void __launch_bounds__(kThreads)
    copy_scaled(std::int64_t count, const From* from, float scale, const float* inverse, To* to) {
  const float factor = inverse == nullptr ? scale : scale * *inverse;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < count;
       i += step)
    to[i] = narrowed<To>(factor * widened(from[i]));
}

/// to[j, i] = factor * from[i, j], from [rows, cols]: one tile per block.
template <class From, class To>
__global__ void __launch_bounds__(kThreads)
    transpose_scaled(std::int64_t rows, std::int64_t cols, const From* from, float scale,
                     const float* inverse, To* to) {
  __shared__ float tile[kTile][kTile + 1];
  const float factor = inverse == nullptr ? scale : scale * *inverse;
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kTile;
  const std::int64_t col = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const int x = static_cast<int>(threadIdx.x) % kTile;
  const int y = static_cast<int>(threadIdx.x) / kTile;
  for (int i = y; i < kTile; i += kTileRows)
    if (row + i < rows && col + x < cols) tile[i][x] = widened(from[(row + i) * cols + col + x]);
  __syncthreads();
  for (int i = y; i < kTile; i += kTileRows)
    if (col + i < cols && row + x < rows)
      to[(col + i) * rows + row + x] = narrowed<To>(factor * tile[x][i]);
}

/// A block has a tile at or below the diagonal, and its mirror image. Without `first` it mirrors in
/// place.
template <class H>
__global__ void __launch_bounds__(kThreads)
    combine(std::int64_t m, float a, float b, const H* first, float c, const H* second, H* to) {
  if (blockIdx.x > blockIdx.y) return;
  __shared__ float tile[kTile][kTile + 1];
  const std::int64_t row = static_cast<std::int64_t>(blockIdx.y) * kTile;
  const std::int64_t col = static_cast<std::int64_t>(blockIdx.x) * kTile;
  const int x = static_cast<int>(threadIdx.x) % kTile;
  const int y = static_cast<int>(threadIdx.x) / kTile;
  const bool on_diagonal = blockIdx.x == blockIdx.y;
  for (int i = y; i < kTile; i += kTileRows) {
    if (row + i >= m || col + x >= m) continue;
    const std::int64_t at = (row + i) * m + col + x;
    float value = c * widened(second[at]);
    if (first != nullptr) value += b * widened(first[at]);
    if (on_diagonal && i == x) value += a;
    tile[i][x] = value;
    if (!on_diagonal || x <= i)
      if (to != second) to[at] = narrowed<H>(value);
  }
  __syncthreads();
  for (int i = y; i < kTile; i += kTileRows)
    if (col + i < m && row + x < m && (!on_diagonal || x > i))
      to[(col + i) * m + row + x] = narrowed<H>(tile[x][i]);
}

std::int64_t blocks_for(std::int64_t count) {
  constexpr std::int64_t kMost = 8192;
  return std::clamp<std::int64_t>(ceil_div(count, std::int64_t{4} * kThreads), 1, kMost);
}

template <class H>
Result<void> launch_combine(std::int64_t m, float a, float b, const H* first, float c,
                            const H* second, H* to, cudaStream_t stream) {
  if (m == 0) return {};
  const std::int64_t tiles = ceil_div(m, std::int64_t{kTile});
  combine<H><<<grid_of(tiles, tiles), kThreads, 0, stream>>>(m, a, b, first, c, second, to);
  return launched("newton_schulz");
}

/// A grid has at most 65535 rows of blocks.
Result<void> check_tiles(std::int64_t rows) {
  if (ceil_div(rows, std::int64_t{kTile}) < 65536) return {};
  return fail("kernel newton_schulz", "expected fewer than 2,097,120 rows and columns");
}

template <class From, class To>
Result<void> transpose(std::int64_t rows, std::int64_t cols, const From* from, float scale,
                       const float* inverse, To* to, cudaStream_t stream) {
  MFSDP_TRY(check_tiles(rows));
  const dim3 grid =
      grid_of(ceil_div(cols, std::int64_t{kTile}), ceil_div(rows, std::int64_t{kTile}));
  transpose_scaled<<<grid, kThreads, 0, stream>>>(rows, cols, from, scale, inverse, to);
  return launched("newton_schulz");
}

}  // namespace

template <class T>
Result<float*> inverse_norm(std::span<const T> values, std::span<std::byte> workspace,
                            cudaStream_t stream) {
  MFSDP_LET(scratch, grid_scratch(workspace, "newton_schulz", stream));
  auto* inverse = reinterpret_cast<float*>(workspace.data() + round_up(kSumWorkspaceBytes, 16));
  const auto count = static_cast<std::int64_t>(values.size());
  const std::int64_t blocks =
      std::clamp<std::int64_t>(ceil_div(count, std::int64_t{kThreads}), 1, kSumBlocks);
  sum_of_squares<<<grid_of(blocks), kThreads, 0, stream>>>(values.data(), count, scratch, inverse);
  MFSDP_TRY(launched("newton_schulz"));
  return inverse;
}

template <class T>
Result<void> load_scaled(std::int64_t rows, std::int64_t cols, const T* matrix, float scale,
                         const float* inverse, Working<T>* to, cudaStream_t stream) {
  if (rows > cols) return transpose(rows, cols, matrix, scale, inverse, to, stream);
  const std::int64_t count = rows * cols;
  copy_scaled<<<grid_of(blocks_for(count)), kThreads, 0, stream>>>(count, matrix, scale, inverse,
                                                                   to);
  return launched("newton_schulz");
}

template <class T>
Result<void> store_scaled(std::int64_t rows, std::int64_t cols, const Working<T>* from, float scale,
                          T* matrix, cudaStream_t stream) {
  if (rows > cols) return transpose(cols, rows, from, scale, nullptr, matrix, stream);
  const std::int64_t count = rows * cols;
  const float* const none = nullptr;
  copy_scaled<<<grid_of(blocks_for(count)), kThreads, 0, stream>>>(count, from, scale, none,
                                                                   matrix);
  return launched("newton_schulz");
}

template <class H>
Result<void> mirror(std::int64_t m, H* square, cudaStream_t stream) {
  return launch_combine<H>(m, 0, 0, nullptr, 1, square, square, stream);
}

template <class H>
Result<void> add_polynomial(std::int64_t m, float a, float b, const H* first, float c,
                            const H* second, H* to, cudaStream_t stream) {
  return launch_combine<H>(m, a, b, first, c, second, to, stream);
}

#define MFSDP_ORTHOGONAL(T)                                                                     \
  template Result<float*> inverse_norm(std::span<const T>, std::span<std::byte>, cudaStream_t); \
  template Result<void> load_scaled(std::int64_t, std::int64_t, const T*, float, const float*,  \
                                    Working<T>*, cudaStream_t);                                 \
  template Result<void> store_scaled(std::int64_t, std::int64_t, const Working<T>*, float, T*,  \
                                     cudaStream_t);                                             \
  template Result<void> mirror(std::int64_t, Working<T>*, cudaStream_t);                        \
  template Result<void> add_polynomial(std::int64_t, float, float, const Working<T>*, float,    \
                                       const Working<T>*, Working<T>*, cudaStream_t);
MFSDP_ORTHOGONAL(Bf16)
MFSDP_ORTHOGONAL(float)
#undef MFSDP_ORTHOGONAL

}  // namespace mfsdp::cuda
