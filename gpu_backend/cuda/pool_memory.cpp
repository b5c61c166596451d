#include "gpu_backend/cuda/pool_memory.hpp"

#include <fmt/format.h>

#include <cstring>
#include <utility>

#include "core/plan/index.hpp"
#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/kernels/test_kernels.hpp"

namespace mfsdp::cuda {

Result<std::byte*> PoolMemory::allocate(const Pool& pool, Communicators& communicators) {
  const auto bytes = static_cast<std::size_t>(pool.height.value);
  const std::string what = fmt::format("rank {}, pool {}", rank_, pool.name);
  allocated_.push_back(pool.height);
  if (bytes == 0) return nullptr;
  MFSDP_LET(base, pool.space == MemorySpace::host
                      ? allocate_on_host(bytes, what)
                      : allocate_on_device(pool, bytes, what, communicators));
  if (reinterpret_cast<std::uintptr_t>(base) % static_cast<std::uintptr_t>(pool.alignment) != 0)
    return fail(what,
                fmt::format("CUDA's memory does not begin on a multiple of {}", pool.alignment),
                Fault::environment);
  return base;
}

Result<std::byte*> PoolMemory::allocate_on_host(std::size_t bytes, const std::string& what) {
  MFSDP_LET(memory, allocate_pinned(bytes, what));
  std::byte* const base = memory.get();
  if (poison_) std::memset(base, kPoisonByte, bytes);
  pinned_.push_back(std::move(memory));
  return base;
}

Result<std::byte*> PoolMemory::allocate_on_device(const Pool& pool, std::size_t bytes,
                                                  const std::string& what,
                                                  Communicators& communicators) {
  std::byte* base = nullptr;
  const auto window = pool.registered
                          ? IdIndex<CommunicatorId>(program_.communicators).find(*pool.registered)
                          : std::nullopt;
  if (window) {
    MFSDP_LET(memory, allocate_communication(bytes, what));
    base = memory.get();
    windows_.push_back(std::move(memory));
    MFSDP_TRY(communicators.register_window(*window, {base, bytes}));
  } else {
    MFSDP_LET(memory, allocate_device(bytes, what));
    base = memory.get();
    device_.push_back(std::move(memory));
  }
  device_pools_.emplace_back(base, bytes);
  return base;
}

Bytes PoolMemory::on_device() const {
  Bytes sum;
  for (const std::span<std::byte> pool : device_pools_)
    sum += Bytes(static_cast<std::int64_t>(pool.size()));
  return sum;
}

Result<void> PoolMemory::fill_with_numbers(cudaStream_t stream) const {
  for (const std::span<std::byte> pool : device_pools_)
    MFSDP_TRY(cuda::fill_with_numbers(pool, stream));
  return {};
}

Result<void> PoolMemory::poison_device() const {
  if (!poison_) return {};
  for (const std::span<std::byte> pool : device_pools_)
    MFSDP_TRY(check(cudaMemset(pool.data(), kPoisonByte, pool.size()), "cudaMemset"));
  return {};
}

}  // namespace mfsdp::cuda
