#include <string>

#include "gpu_backend/cuda/kernels/fp8.cuh"
#include "gpu_backend/cuda/kernels/fp8.hpp"

namespace mfsdp::cuda {
namespace {

using kernels::Amax;
using kernels::CastScaled;

constexpr int kThreads = 256;
constexpr int kUnroll = 4;
constexpr int kCastUnroll = 2;
constexpr std::int64_t kAmaxBlocks =
    132 * 8;  ///< enough to fill a large GPU; each raises the amax once

template <class T, int N>
__global__ void __launch_bounds__(kThreads)
    amax_of(std::int64_t count, const T* input, float* amax) {
  Largest<T> largest;
  const std::int64_t packs = count / N;
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads * kUnroll;
  for (std::int64_t first =
           static_cast<std::int64_t>(blockIdx.x) * kThreads * kUnroll + threadIdx.x;
       first < packs; first += step) {
    Pack<T, N> pack[kUnroll] = {};
#pragma unroll
    for (int u = 0; u < kUnroll; ++u)
      if (first + u * kThreads < packs) pack[u] = load<T, N>(input + (first + u * kThreads) * N);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) largest.add(pack[u]);
  }
  const std::int64_t rest = packs * N + threadIdx.x;
  if (blockIdx.x == 0 && rest < count) largest.add(load<T, 1>(input + rest));
  raise_to(largest.bits(), amax);
}

/// AmaxHistory, a thread for each tensor. Reads of several rows are in flight at once.
__global__ void history_of(const kernels::AmaxHistory k) {
  constexpr int kRows = 16;
  const std::int64_t tensor = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (tensor >= k.tensors) return;
  const float last = k.next_amax[tensor];
  k.next_amax[tensor] = 0;
  if (last == 0) return;
  float largest = last;
  for (std::int64_t slot = 1; slot < k.slots; slot += kRows) {
    float kept[kRows];
#pragma unroll
    for (int i = 0; i < kRows; ++i)
      if (slot + i < k.slots) kept[i] = k.history[(slot + i) * k.tensors + tensor];
#pragma unroll
    for (int i = 0; i < kRows; ++i) {
      if (slot + i >= k.slots) continue;
      k.history[(slot + i - 1) * k.tensors + tensor] = kept[i];
      if (!k.recent) largest = fmaxf(largest, kept[i]);
    }
  }
  k.history[(k.slots - 1) * k.tensors + tensor] = last;
  if (largest != 0 && isfinite(largest)) k.amax[tensor] = largest;
}

/// CastScaled with its FP8 type.
template <class T, class F>
struct CastCall {
  std::int64_t rows;
  std::int64_t cols;
  const T* input;
  const float* amax;
  F* output;
  F* output_t;
  float* output_scale;
  float* next_amax;
  bool through_bf16;

  /// The number that is cast in place of an input, and the amax that counts.
  __device__ float rounded(float value) const {
    if constexpr (std::is_same_v<T, Bf16>) return value;
    return through_bf16 ? widened(narrowed<Bf16>(value)) : value;
  }
};

template <class F>
__device__ void set_scale(float factor, float* scale) {
  if (blockIdx.x == 0 && threadIdx.x == 0) *scale = __fdiv_rn(1, factor);
}

template <class T, class F>
__global__ void __launch_bounds__(kTileThreads)
    cast_tiles(const CastCall<T, F> k, const ByteTileOrder order) {
  __shared__ TransposedTile<kCastStrip> tile;
  const ByteTileOrder::Place place = order.of(blockIdx.x);
  const float factor = factor_of<F>(k.rounded(*k.amax));
  set_scale<F>(factor, k.output_scale);
  const int strip = static_cast<int>(threadIdx.x) % kCastStrips;
  const int first_quad = static_cast<int>(threadIdx.x) / kCastStrips;
  const std::int64_t col = place.col + strip * kCastStrip;
  // All loads of a thread are in flight at once, unless they would need too many registers.
  constexpr int kAtOnce = sizeof(T) == 2 ? kHalves : 1;
  Largest<T> largest;
#pragma unroll
  for (int from = 0; from < kHalves; from += kAtOnce) {
    Pack<T, kCastStrip> packs[kAtOnce][4] = {};
    const auto row_of = [&](int half, int r) {
      return place.row + 4 * ((from + half) * kHalfQuads + first_quad) + r;
    };
#pragma unroll
    for (int half = 0; half < kAtOnce; ++half)
#pragma unroll
      for (int r = 0; r < 4; ++r)
        if (row_of(half, r) < k.rows && col < k.cols)
          packs[half][r] = load<T, kCastStrip>(k.input + row_of(half, r) * k.cols + col);
#pragma unroll
    for (int half = 0; half < kAtOnce; ++half) {
      float values[4][kCastStrip];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        if (k.next_amax != nullptr) largest.add(packs[half][r]);
        widen_all(packs[half][r], values[r]);
#pragma unroll
        for (float& value : values[r]) value = k.rounded(value);
      }
      const bool inside = row_of(half, 0) < k.rows && col < k.cols;
      cast_block<F>(
          values, factor, inside ? k.output : nullptr,
          [&](int r) { return row_of(half, r) * k.cols + col; }, &tile,
          (from + half) * kHalfQuads + first_quad, strip);
    }
  }
  if (k.next_amax != nullptr) raise_to(largest.bits(), k.next_amax);
  __syncthreads();
  tile.write(place, k.rows, k.cols, reinterpret_cast<std::uint8_t*>(k.output_t));
}

/// The codes as stored alone; N elements at once. Hints that the input is not read again cost a tenth.
template <class T, class F, int N>
__global__ void __launch_bounds__(kThreads) cast_elements(const CastCall<T, F> k) {
  const float factor = factor_of<F>(k.rounded(*k.amax));
  set_scale<F>(factor, k.output_scale);
  const std::int64_t packs = k.rows * k.cols / N;
  const std::int64_t first =
      static_cast<std::int64_t>(blockIdx.x) * kThreads * kCastUnroll + threadIdx.x;
  Largest<T> largest;
  Pack<T, N> pack[kCastUnroll] = {};
#pragma unroll
  for (int u = 0; u < kCastUnroll; ++u)
    if (first + u * kThreads < packs) pack[u] = load<T, N>(k.input + (first + u * kThreads) * N);
#pragma unroll
  for (int u = 0; u < kCastUnroll; ++u) {
    if (k.next_amax != nullptr) largest.add(pack[u]);
    if (first + u * kThreads >= packs) continue;
    float values[N < 4 ? 4 : N] = {};
#pragma unroll
    for (int i = 0; i < N; ++i) values[i] = k.rounded(element(pack[u], i));
    F* const to = k.output + (first + u * kThreads) * N;
    if constexpr (N == 8)
      *reinterpret_cast<uint2*>(to) =
          uint2{four_codes<F>(values, factor), four_codes<F>(values + 4, factor)};
    else
      to->bits = static_cast<std::uint8_t>(four_codes<F>(values, factor));
  }
  if (k.next_amax != nullptr) raise_to(largest.bits(), k.next_amax);
}

constexpr int kByteStrip = 16;
constexpr int kByteStrips = kTile / kByteStrip;

__global__ void __launch_bounds__(kTileThreads)
    transpose_tiles(std::int64_t rows, std::int64_t cols, const std::uint8_t* input,
                    std::uint8_t* output, const ByteTileOrder order) {
  static_assert(kTileThreads / kByteStrips * 4 == kTile);
  __shared__ TransposedTile<kByteStrip> tile;
  const ByteTileOrder::Place place = order.of(blockIdx.x);
  const int strip = static_cast<int>(threadIdx.x) % kByteStrips;
  const int quad = static_cast<int>(threadIdx.x) / kByteStrips;
  const std::int64_t row = place.row + 4 * quad;
  const std::int64_t col = place.col + strip * kByteStrip;
  uint4 loaded[4] = {};
#pragma unroll
  for (int r = 0; r < 4; ++r)
    if (row < rows && col < cols)
      loaded[r] = *reinterpret_cast<const uint4*>(input + (row + r) * cols + col);
  std::uint32_t words[4][4];
#pragma unroll
  for (int r = 0; r < 4; ++r) {
    words[r][0] = loaded[r].x;
    words[r][1] = loaded[r].y;
    words[r][2] = loaded[r].z;
    words[r][3] = loaded[r].w;
  }
  tile.put(quad, strip, words);
  __syncthreads();
  tile.write(place, rows, cols, output);
}

template <class T, class F>
Result<void> launch_cast(const CastCall<T, F>& k, cudaStream_t stream) {
  const std::int64_t count = k.rows * k.cols;
  if (k.output_t != nullptr) {
    MFSDP_TRY(check_transposes("cast_scaled", k.rows, k.cols, {k.input, k.output, k.output_t}));
    ByteTileOrder order = tiles_of(k.rows, k.cols);
    order.backwards = true;
    prefer_cache_with_tiles<cast_tiles<T, F>>();
    cast_tiles<<<grid_of(order.row_tiles * order.col_tiles), kTileThreads, 0, stream>>>(k, order);
    return launched("cast_scaled");
  }
  constexpr int N = kCastStrip;
  if (count % N == 0 && is_aligned({k.input}, 16) && is_aligned({k.output}, N))
    cast_elements<T, F, N><<<grid_of(ceil_div(count / N, std::int64_t{kThreads * kCastUnroll})),
                             kThreads, 0, stream>>>(k);
  else
    cast_elements<T, F, 1>
        <<<grid_of(ceil_div(count, std::int64_t{kThreads * kCastUnroll})), kThreads, 0, stream>>>(
            k);
  return launched("cast_scaled");
}

}  // namespace

Result<void> check_transposes(std::string_view kernel, std::int64_t rows, std::int64_t cols,
                              std::initializer_list<const void*> matrices) {
  if (rows % 16 != 0 || cols % 16 != 0)
    return fail("kernel " + std::string(kernel),
                "expected rows and columns in multiples of 16 for a transposed copy, got " +
                    std::to_string(rows) + " x " + std::to_string(cols));
  if (!is_aligned(matrices, 16))
    return fail("kernel " + std::string(kernel), "expected matrices on multiples of 16 bytes");
  return {};
}

template <class T>
Result<void> amax(const Amax<T>& k, cudaStream_t stream) {
  if (!k.adds) MFSDP_TRY(begin_amax(k.amax, "amax", stream));
  const std::int64_t count = k.rows * k.cols;
  if (count == 0) return {};
  const auto launch = [&](auto n) {
    const std::int64_t blocks =
        ceil_div(ceil_div(count, std::int64_t{n()}), std::int64_t{kThreads * kUnroll});
    prefer_cache<amax_of<T, n()>>();
    amax_of<T, n()>
        <<<grid_of(std::min(blocks, kAmaxBlocks)), kThreads, 0, stream>>>(count, k.input, k.amax);
  };
  if (is_aligned({k.input}, 16))
    launch(std::integral_constant<int, kPack<T>>{});
  else
    launch(std::integral_constant<int, 1>{});
  return launched("amax");
}

template <class T>
Result<void> cast_scaled(const CastScaled<T>& k, cudaStream_t stream) {
  const auto cast_to = [&]<class F>(F) {
    return launch_cast(CastCall<T, F>{.rows = k.rows,
                                      .cols = k.cols,
                                      .input = k.input,
                                      .amax = k.amax,
                                      .output = reinterpret_cast<F*>(k.output.data),
                                      .output_t = reinterpret_cast<F*>(k.output_t.data),
                                      .output_scale = k.output_scale,
                                      .next_amax = k.next_amax,
                                      .through_bf16 = k.through_bf16},
                       stream);
  };
  if (k.rows == 0 || k.cols == 0) return {};
  return k.dtype() == DType::fp8_e4m3 ? cast_to(Fp8E4m3{}) : cast_to(Fp8E5m2{});
}

Result<void> keep_amaxes(const kernels::AmaxHistory& k, cudaStream_t stream) {
  if (k.tensors == 0 || k.slots == 0) return {};
  constexpr int kColumns = 32;  // few columns: many small blocks read them at once
  history_of<<<grid_of(ceil_div(k.tensors, std::int64_t{kColumns})), kColumns, 0, stream>>>(k);
  return launched("amax_history");
}

Result<void> transpose(const kernels::Transpose& k, cudaStream_t stream) {
  if (k.rows == 0 || k.cols == 0) return {};
  MFSDP_TRY(check_transposes("transpose", k.rows, k.cols, {k.input.data, k.output.data}));
  ByteTileOrder order = tiles_of(k.rows, k.cols);
  order.down = true;
  prefer_cache_with_tiles<transpose_tiles>();
  transpose_tiles<<<grid_of(order.row_tiles * order.col_tiles), kTileThreads, 0, stream>>>(
      k.rows, k.cols, &k.input.data->bits, &k.output.data->bits, order);
  return launched("transpose");
}

#define MFSDP_FP8(T)                                        \
  template Result<void> amax(const Amax<T>&, cudaStream_t); \
  template Result<void> cast_scaled(const CastScaled<T>&, cudaStream_t);
MFSDP_FP8(Bf16)
MFSDP_FP8(Fp16)
MFSDP_FP8(float)
#undef MFSDP_FP8

}  // namespace mfsdp::cuda
