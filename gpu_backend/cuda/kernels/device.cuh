// Device code that kernels share: packs of elements, and sums in a fixed order.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>

#include "core/base/quantity.hpp"
#include "core/runtime/scalar.hpp"
#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {

inline constexpr int kWarp = 32;

// ---- elements: loads widen to fp32, stores round once, to nearest even ------------------------

__device__ inline float widened(float value) { return value; }
__device__ inline float widened(Bf16 value) {
  return __uint_as_float(static_cast<std::uint32_t>(value.bits) << 16U);
}

__device__ inline float widened(Fp16 value) { return __half2float(__ushort_as_half(value.bits)); }

template <class T>
__device__ T narrowed(float value) {
  if constexpr (std::is_same_v<T, float>)
    return value;
  else if constexpr (std::is_same_v<T, Fp16>)
    return Fp16{__half_as_ushort(__float2half_rn(value))};
  else
    return Bf16{__bfloat16_as_ushort(__float2bfloat16_rn(value))};
}

/// Whether N elements are stored as words of two, because registers for 16-bit values are 32 bits
/// wide. Only for bf16: fp16 runs are rare.
template <class T, int N>
inline constexpr bool kPairs = std::is_same_v<T, Bf16> && N % 2 == 0;

/// N elements, loaded and stored by one instruction of up to 16 bytes.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Pack {
  std::conditional_t<kPairs<T, N>, std::uint32_t[N / 2], T[N]> values;
};

/// Elements of a 16-byte load.
template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

template <class T, int N>
__device__ Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}

/// Loads data that is not read again soon; it is evicted from the caches first.
template <class T, int N>
__device__ Pack<T, N> load_streaming(const T* from) {
  if constexpr (sizeof(Pack<T, N>) == sizeof(uint4))
    return __builtin_bit_cast(Pack<T, N>, __ldcs(reinterpret_cast<const uint4*>(from)));
  else
    return load<T, N>(from);
}

template <class T, int N>
__device__ float element(const Pack<T, N>& pack, int i) {
  if constexpr (kPairs<T, N>) {
    const std::uint32_t word = pack.values[i / 2];
    return __uint_as_float(i % 2 == 0 ? word << 16U : word & 0xffff0000U);
  } else {
    return widened(pack.values[i]);
  }
}

template <class T, int N>
__device__ void widen_all(const Pack<T, N>& pack, float (&to)[N]) {
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = element(pack, i);
}

template <int N, class T>
__device__ void load_widened(const T* from, float (&to)[N]) {
  widen_all(load<T, N>(from), to);
}

template <class T, int N>
__device__ Pack<T, N> narrow_all(const float (&from)[N]) {
  Pack<T, N> pack;
  if constexpr (kPairs<T, N>) {
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      const __nv_bfloat162 pair = __float22bfloat162_rn({from[2 * i], from[2 * i + 1]});
      pack.values[i] = *reinterpret_cast<const std::uint32_t*>(&pair);
    }
  } else {
#pragma unroll
    for (int i = 0; i < N; ++i) pack.values[i] = narrowed<T>(from[i]);
  }
  return pack;
}

template <int N, class T>
__device__ void store(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

template <int N, class T>
__device__ void store_streaming(T* to, const Pack<T, N>& pack) {
  if constexpr (sizeof(pack) == sizeof(uint4))
    __stcs(reinterpret_cast<uint4*>(to), __builtin_bit_cast(uint4, pack));
  else
    store<N>(to, pack);
}

template <int N, class T>
__device__ void store_narrowed(T* to, const float (&from)[N]) {
  store<N>(to, narrow_all<T, N>(from));
}

// ---- sums --------------------------------------------------------------------------------------

/// The sum over a warp's lanes, in each of them.
template <class R>
__device__ R warp_sum(R value) {
#pragma unroll
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(0xffffffffU, value, offset);
  return value;
}

/// The sum over a block of complete warps, in each thread. `shared`: one element per warp; it may
/// be reused only after another barrier.
template <class R>
__device__ R block_sum(R value, R* shared) {
  value = warp_sum(value);
  const int lane = static_cast<int>(threadIdx.x) % kWarp;
  const int warps = static_cast<int>(blockDim.x) / kWarp;
  if (lane == 0) shared[threadIdx.x / kWarp] = value;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : R(0));
}

// ---- launches ----------------------------------------------------------------------------------

[[nodiscard]] inline bool is_aligned(std::initializer_list<const void*> pointers,
                                     std::size_t bytes) {
  return std::ranges::all_of(pointers, [bytes](const void* pointer) {
    return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
  });
}

[[nodiscard]] inline dim3 grid_of(std::int64_t x, std::int64_t y = 1) {
  return {static_cast<unsigned>(x), static_cast<unsigned>(y), 1};
}

/// Gives a kernel that waits for its loads the largest possible L1 cache, in which loads wait.
/// After a GEMM, an SM's L1 cache has only 28 of 256 KiB
/// (docs/lab/2026-11-28-cache-beside-gemms.md). Set once per process. It is a preference that
/// changes no result, so CUDA's return code is ignored.
template <auto kernel>
void prefer_cache() {
  static const cudaError_t asked = cudaFuncSetAttribute(
      kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxL1);
  static_cast<void>(asked);
}

/// The error of the last launch.
[[nodiscard]] inline Result<void> launched(std::string_view kernel) {
  return check(cudaGetLastError(), kernel);
}

}  // namespace mfsdp::cuda
