// A rank's GPU, and environment variables that CUDA and NCCL read at their first call.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"

namespace mfsdp::cuda {

/// Call first in a process, while it has one thread. Variables that the user has set are kept:
///   CUDA_MODULE_LOADING=EAGER     no kernel is loaded, and no memory taken for one, inside a step
///   NCCL_LAUNCH_ORDER_IMPLICIT=1  communicators of one host thread cannot wait for each other
///   NCCL_NVLS_ENABLE=0            multicast over NVLink changes sums and takes memory of its own
///   NCCL_L1_SHARED_MEMORY_CARVEOUT=1  (per cent) sums wait for their loads in the L1 cache, of
///                                 of which a GEMM leaves little
///                                 (docs/lab/2026-11-28-cache-beside-gemms.md)
///   CUDA_DEVICE_MAX_CONNECTIONS=32  with `windows`: the plan's streams and those of NCCL's copies
///                                 are more than 8, which would wait for each other by accident
void set_environment(bool windows = false);

/// Number of GPUs that this process sees (respects CUDA_VISIBLE_DEVICES). Errors, as
/// Fault::environment: no driver, or no GPU.
[[nodiscard]] Result<std::int64_t> count_devices();

struct Device {
  int number = 0;  ///< index among the visible ones
  std::string name;
  Bytes memory;  ///< total, as reported to the process
};

/// Makes GPU `local_rank` the calling thread's device and creates a context. Errors name both
/// numbers if there are too few GPUs, and the compute capability if this build has no code for it.
[[nodiscard]] Result<Device> open_device(std::int64_t local_rank);

/// Versions of the loaded libraries, which may differ from those of the build: "13.0", "2.27.7".
/// Empty if a library does not report one.
struct LibraryVersions {
  std::string driver;  ///< the newest CUDA version that the driver supports
  std::string runtime;
  std::string nccl;
  std::string cudnn;
  std::string cublaslt;
};

[[nodiscard]] LibraryVersions library_versions();

/// Bytes in use on the current device, by all processes.
[[nodiscard]] Result<Bytes> taken_memory();

}  // namespace mfsdp::cuda
