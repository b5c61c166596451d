// Blocks that contention_probe runs beside GEMMs, its copies, and kernels that fill operands.
#pragma once

#include <cuda_bf16.h>

#include <cstddef>
#include <cstdint>

namespace mfsdp::contention {

/// Spins until `stop` is set.
static __global__ void spin(const volatile int* stop) {
  while (*stop == 0) __nanosleep(200);
}

/// Copies its part again and again until `stop` is set; adds the bytes copied to `copied`.
static __global__ void copy(const uint4* from, uint4* to, std::size_t count,
                            const volatile int* stop, unsigned long long* copied) {
  const std::size_t part = count / gridDim.x;
  const uint4* source = from + part * blockIdx.x;
  uint4* target = to + part * blockIdx.x;
  constexpr std::size_t kUnroll = 8;
  const std::size_t stride = kUnroll * blockDim.x;
  unsigned long long moved = 0;
  for (bool more = true; more;) {
    for (std::size_t at = threadIdx.x; at + (kUnroll - 1) * blockDim.x < part; at += stride) {
      uint4 values[kUnroll];
      for (std::size_t i = 0; i < kUnroll; ++i) values[i] = source[at + i * blockDim.x];
      for (std::size_t i = 0; i < kUnroll; ++i) target[at + i * blockDim.x] = values[i];
      moved += kUnroll * sizeof(uint4);
      more = *stop == 0;
      if (!more) break;
    }
  }
  atomicAdd(copied, moved);
}

static __global__ void copy_once(const uint4* from, uint4* to, std::size_t count) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride)
    to[i] = from[i];
}

/// About normal(0, deviation): a sum of twelve uniforms.
static __global__ void fill(__nv_bfloat16* values, std::size_t count, float deviation,
                            std::uint32_t seed) {
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += static_cast<std::size_t>(gridDim.x) * blockDim.x) {
    std::uint32_t state = static_cast<std::uint32_t>(i) * 2654435761u ^ seed;
    float sum = -6;
    for (int k = 0; k < 12; ++k) {
      state ^= state << 13;
      state ^= state >> 17;
      state ^= state << 5;
      sum += static_cast<float>(state) * 2.3283064e-10f;
    }
    values[i] = __float2bfloat16(sum * deviation);
  }
}

}  // namespace mfsdp::contention
