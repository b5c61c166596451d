// The memory of a rank's pools: on the device, in pinned host memory, or as registered memory that
// NCCL maps into other ranks.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"
#include "core/plan/plan.hpp"
#include "gpu_backend/cuda/communicators.hpp"
#include "gpu_backend/cuda/handles.hpp"

namespace mfsdp::cuda {

/// The byte of poisoned memory (--poison): a NaN in bf16, fp16 and fp32.
inline constexpr int kPoisonByte = 0xff;

class PoolMemory {
 public:
  /// Errors name `rank`. `poison`: memory begins poisoned. The program outlives this object.
  PoolMemory(const Program& program, std::int64_t rank, bool poison)
      : program_(program), rank_(rank), poison_(poison) {}

  /// As Backend::allocate. A registered pool is registered with its communicator, which must be
  /// destroyed before this object.
  [[nodiscard]] Result<std::byte*> allocate(const Pool& pool, Communicators& communicators);

  /// Bytes of each pool, in the order of allocation.
  [[nodiscard]] const std::vector<Bytes>& allocated() const { return allocated_; }
  /// Bytes of the pools on the device.
  [[nodiscard]] Bytes on_device() const;

  /// Fills the device's pools with numbers of ordinary size, because GPUs multiply zeros faster.
  [[nodiscard]] Result<void> fill_with_numbers(cudaStream_t stream) const;
  /// Poisons the device's pools, with --poison.
  [[nodiscard]] Result<void> poison_device() const;

 private:
  [[nodiscard]] Result<std::byte*> allocate_on_host(std::size_t bytes, const std::string& what);
  [[nodiscard]] Result<std::byte*> allocate_on_device(const Pool& pool, std::size_t bytes,
                                                      const std::string& what,
                                                      Communicators& communicators);

  const Program& program_;
  std::int64_t rank_;
  bool poison_;
  std::vector<DeviceMemory> device_;
  std::vector<PinnedMemory> pinned_;
  std::vector<CommunicationMemory> windows_;
  std::vector<std::span<std::byte>> device_pools_;  ///< of device_ and windows_
  std::vector<Bytes> allocated_;
};

}  // namespace mfsdp::cuda
