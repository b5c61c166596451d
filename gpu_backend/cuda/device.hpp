// Which GPU a rank has, and what CUDA and NCCL must be told before their first call.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"

namespace mfsdp::cuda {

/// To be called first in a process, while it has one thread. What the user has set stays:
///   CUDA_MODULE_LOADING=EAGER     no kernel is loaded, and no memory taken for one, inside a step
///   NCCL_LAUNCH_ORDER_IMPLICIT=1  communicators of one host thread cannot wait for each other
///   NCCL_NVLS_ENABLE=0            multicast over NVLink changes sums and takes memory of its own
///   NCCL_L1_SHARED_MEMORY_CARVEOUT=1  (per cent) sums wait for their loads in the L1 cache, of
///                                 which a product leaves its SMs little
///                                 (docs/lab/2026-11-28-cache-beside-gemms.md)
///   CUDA_DEVICE_MAX_CONNECTIONS=32  with `windows`: the plan's streams and those of NCCL's copies
///                                 are more than 8, which would wait for each other by accident
void set_environment(bool windows = false);

/// GPUs that this process sees (CUDA_VISIBLE_DEVICES is heeded). Errors, of the environment: no
/// driver, none seen.
[[nodiscard]] Result<std::int64_t> count_devices();

struct Device {
  int number = 0;  ///< of those that are visible
  std::string name;
  Bytes memory;  ///< as the process sees it
};

/// Makes GPU `local_rank` the calling thread's device, with a context. Errors name both numbers
/// where there are fewer GPUs, and the compute capability where this build has no code for it.
[[nodiscard]] Result<Device> open_device(std::int64_t local_rank);

/// What is loaded, which need not be what the program was built with: "13.0", "2.27.7". Empty where
/// a library does not say.
struct LibraryVersions {
  std::string driver;  ///< the newest CUDA that the driver serves
  std::string runtime;
  std::string nccl;
  std::string cudnn;
  std::string cublaslt;
};

[[nodiscard]] LibraryVersions library_versions();

/// Bytes of the current device that are taken, by whomever.
[[nodiscard]] Result<Bytes> taken_memory();

}  // namespace mfsdp::cuda
