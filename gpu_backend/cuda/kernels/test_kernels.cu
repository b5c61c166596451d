#include "gpu_backend/cuda/kernels/device.cuh"
#include "gpu_backend/cuda/kernels/test_kernels.hpp"

namespace mfsdp::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kBlocks = 4096;

__device__ std::uint64_t nanoseconds() {
  std::uint64_t now;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void spin(std::uint64_t duration) {
  const std::uint64_t begin = nanoseconds();
  while (nanoseconds() - begin < duration) __nanosleep(1000);
}

__global__ void spin_until(const volatile std::uint32_t* ended) {
  while (*ended == 0) __nanosleep(10000);
}

/// The finalizer of MurmurHash3.
__device__ std::uint32_t mixed(std::uint32_t value) {
  value = (value ^ (value >> 16U)) * 0x85ebca6bU;
  value = (value ^ (value >> 13U)) * 0xc2b2ae35U;
  return value ^ (value >> 16U);
}

/// Both halves of a word: a random sign and fraction, and a magnitude from 2^-3 to 2.
__global__ void fill(std::uint32_t* words, std::int64_t count) {
  const std::int64_t step = static_cast<std::int64_t>(gridDim.x) * kThreads;
  for (std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; at < count;
       at += step) {
    const std::uint32_t random = mixed(static_cast<std::uint32_t>(at));
    words[at] = (random & 0x81ff81ffU) | 0x3e003e00U;
  }
}

}  // namespace

bool has_code_for_device() {
  cudaFuncAttributes attributes{};
  const bool has = cudaFuncGetAttributes(&attributes, spin) == cudaSuccess;
  static_cast<void>(cudaGetLastError());  // clears the error, so that the next launch does not
                                          // report it
  return has;
}

Result<void> delay(Nanos duration, cudaStream_t stream) {
  spin<<<1, 1, 0, stream>>>(static_cast<std::uint64_t>(duration.value));
  return launched("delay");
}

Result<void> stop_until(const volatile std::uint32_t* ended, cudaStream_t stream) {
  spin_until<<<1, 1, 0, stream>>>(ended);
  return launched("stop");
}

Result<void> fill_with_numbers(std::span<std::byte> bytes, cudaStream_t stream) {
  const auto count = static_cast<std::int64_t>(bytes.size() / sizeof(std::uint32_t));
  if (count == 0) return {};
  const std::int64_t blocks = std::min(ceil_div(count, std::int64_t{kThreads}), kBlocks);
  fill<<<grid_of(blocks), kThreads, 0, stream>>>(reinterpret_cast<std::uint32_t*>(bytes.data()),
                                                 count);
  return launched("fill_with_numbers");
}

}  // namespace mfsdp::cuda
