// SwiGLU whose results become FP8 codes on the way: the values in between are never stored.
#include "gpu_backend/cuda/kernels/fp8.cuh"
#include "gpu_backend/cuda/kernels/fp8.hpp"
#include "gpu_backend/cuda/kernels/swiglu.cuh"

namespace mfsdp::cuda {
namespace {

using Tile = TransposedTile<kCastStrip>;

/// One pack's elements as they would be stored, widened again.
template <class T>
__device__ void round_to(const float (&values)[kCastStrip], Largest<T>& largest,
                         float (&rounded)[kCastStrip]) {
  const auto pack = narrow_all<T, kCastStrip>(values);
  largest.add(pack);
  widen_all(pack, rounded);
}

/// Matrices of a block that casts a tile of [rows, cols].
template <class T>
struct GateUp {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const T* gate_up = nullptr;
  const T* d_product = nullptr;
};

/// A thread's part of half a tile.
struct Lane {
  __device__ Lane()
      : strip(static_cast<int>(threadIdx.x) % kCastStrips),
        first_quad(static_cast<int>(threadIdx.x) / kCastStrips) {}
  int strip;
  int first_quad;
};

template <class F>
__device__ float factor_and_scale(const CastTargets<F>& to) {
  const float factor = factor_of<F>(*to.amax);
  if (blockIdx.x == 0 && threadIdx.x == 0) *to.output_scale = __fdiv_rn(1, factor);
  return factor;
}

template <class T, class F>
__global__ void __launch_bounds__(kTileThreads)
    forward_cast(const GateUp<T> k, const CastTargets<F> to, const ByteTileOrder order) {
  __shared__ Tile tile;
  const ByteTileOrder::Place place = order.of(blockIdx.x);
  const float factor = factor_and_scale(to);
  const Lane lane;
  const std::int64_t col = place.col + lane.strip * kCastStrip;
  Largest<T> largest;
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int quad = half * kHalfQuads + lane.first_quad;
    const std::int64_t row = place.row + 4 * quad;
    const bool inside = row < k.rows && col < k.cols;
    Pack<T, kCastStrip> gate[4] = {};
    Pack<T, kCastStrip> up[4] = {};
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if (!inside) continue;
      const T* const from = k.gate_up + (row + r) * 2 * k.cols + col;
      gate[r] = load<T, kCastStrip>(from);
      up[r] = load<T, kCastStrip>(from + k.cols);
    }
    float values[4][kCastStrip];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float product[kCastStrip];
#pragma unroll
      for (int i = 0; i < kCastStrip; ++i) {
        const float g = element(gate[r], i);
        product[i] = gated_product(g, sigmoid<T>(Silu::z(g)), element(up[r], i));
      }
      round_to<T>(product, largest, values[r]);
    }
    cast_block<F>(
        values, factor, inside ? to.output : nullptr,
        [&](int r) { return (row + r) * k.cols + col; }, &tile, quad, lane.strip);
  }
  if (to.next_amax != nullptr) raise_to(largest.bits(), to.next_amax);
  if (to.output_t == nullptr) return;
  __syncthreads();
  tile.write(place, k.rows, k.cols, reinterpret_cast<std::uint8_t*>(to.output_t));
}

/// A block has a tile of the gates' gradient and that of ups beside it.
template <class T, class F>
__global__ void __launch_bounds__(kTileThreads, 2)
    backward_cast(const GateUp<T> k, const CastTargets<F> to, const ByteTileOrder order) {
  __shared__ Tile tiles[2];
  const ByteTileOrder::Place place = order.of(blockIdx.x);
  const float factor = factor_and_scale(to);
  const Lane lane;
  const std::int64_t col = place.col + lane.strip * kCastStrip;
  Largest<T> largest;
#pragma unroll
  for (int half = 0; half < kHalves; ++half) {
    const int quad = half * kHalfQuads + lane.first_quad;
    const std::int64_t row = place.row + 4 * quad;
    const bool inside = row < k.rows && col < k.cols;
    Pack<T, kCastStrip> gate[4] = {};
    Pack<T, kCastStrip> up[4] = {};
    Pack<T, kCastStrip> d[4] = {};
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      if (!inside) continue;
      const T* const from = k.gate_up + (row + r) * 2 * k.cols + col;
      gate[r] = load<T, kCastStrip>(from);
      up[r] = load<T, kCastStrip>(from + k.cols);
      d[r] = load<T, kCastStrip>(k.d_product + (row + r) * k.cols + col);
    }
    float d_gate[4][kCastStrip];
    float d_up[4][kCastStrip];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      float g[kCastStrip];
      float u[kCastStrip];
#pragma unroll
      for (int i = 0; i < kCastStrip; ++i) {
        g[i] = element(gate[r], i);
        u[i] = element(up[r], i);
        gated_gradient<Silu, T>(g[i], u[i], element(d[r], i));
      }
      round_to<T>(g, largest, d_gate[r]);
      round_to<T>(u, largest, d_up[r]);
    }
    F* const output = inside ? to.output : nullptr;
    const auto at = [&](int r) { return (row + r) * 2 * k.cols + col; };
    cast_block<F>(d_gate, factor, output, at, &tiles[0], quad, lane.strip);
    cast_block<F>(
        d_up, factor, output, [&](int r) { return at(r) + k.cols; }, &tiles[1], quad, lane.strip);
  }
  if (to.next_amax != nullptr) raise_to(largest.bits(), to.next_amax);
  if (to.output_t == nullptr) return;
  __syncthreads();
  auto* const codes = reinterpret_cast<std::uint8_t*>(to.output_t);
  tiles[0].write(place, k.rows, k.cols, codes);
  tiles[1].write(place, k.rows, k.cols, codes + k.cols * k.rows);
}

template <class T, class F>
Result<void> check_cast(const char* kernel, const GateUp<T>& k, const CastTargets<F>& to) {
  if (k.rows % 16 != 0 || k.cols % 16 != 0 ||
      !is_aligned({k.gate_up, k.d_product, to.output, to.output_t}, 16))
    return fail(
        kernel,
        "expected rows and columns in multiples of 16, and matrices on multiples of 16 bytes");
  return {};
}

}  // namespace

template <class T, class F>
Result<void> swiglu_forward_cast(std::int64_t rows, std::int64_t cols, const T* gate_up,
                                 const CastTargets<F>& to, cudaStream_t stream) {
  const GateUp<T> k{.rows = rows, .cols = cols, .gate_up = gate_up};
  MFSDP_TRY(check_cast("swiglu_forward_cast", k, to));
  if (rows == 0 || cols == 0) return {};
  const ByteTileOrder order = tiles_of(rows, cols);
  prefer_cache_with_tiles<forward_cast<T, F>>();
  forward_cast<<<grid_of(order.row_tiles * order.col_tiles), kTileThreads, 0, stream>>>(k, to,
                                                                                        order);
  return launched("swiglu_forward_cast");
}

template <class T, class F>
Result<void> swiglu_backward_cast(std::int64_t rows, std::int64_t cols, const T* gate_up,
                                  const T* d_product, const CastTargets<F>& to,
                                  cudaStream_t stream) {
  const GateUp<T> k{.rows = rows, .cols = cols, .gate_up = gate_up, .d_product = d_product};
  MFSDP_TRY(check_cast("swiglu_backward_cast", k, to));
  if (rows == 0 || cols == 0) return {};
  const ByteTileOrder order = tiles_of(rows, cols);
  prefer_cache_with_tiles<backward_cast<T, F>>();
  backward_cast<<<grid_of(order.row_tiles * order.col_tiles), kTileThreads, 0, stream>>>(k, to,
                                                                                         order);
  return launched("swiglu_backward_cast");
}

#define MFSDP_FP8(F)                                                                               \
  template Result<void> swiglu_forward_cast(std::int64_t, std::int64_t, const Bf16*,               \
                                            const CastTargets<F>&, cudaStream_t);                  \
  template Result<void> swiglu_backward_cast(std::int64_t, std::int64_t, const Bf16*, const Bf16*, \
                                             const CastTargets<F>&, cudaStream_t);
MFSDP_FP8(Fp8E4m3)
MFSDP_FP8(Fp8E5m2)
#undef MFSDP_FP8

}  // namespace mfsdp::cuda
