#include "gpu_backend/cuda/device.hpp"

#include <cuda_runtime.h>
#include <cudnn.h>
#include <fmt/format.h>
#include <nccl.h>

#include <cstdlib>

#include "gpu_backend/cuda/check.hpp"
#include "gpu_backend/cuda/kernels/test_kernels.hpp"

namespace mfsdp::cuda {

void set_environment(bool windows) {
  constexpr int kKeep = 0;  // keeps a value that the user has set
  setenv("CUDA_MODULE_LOADING", "EAGER", kKeep);
  setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", kKeep);
  setenv("NCCL_NVLS_ENABLE", "0", kKeep);
  setenv("NCCL_L1_SHARED_MEMORY_CARVEOUT", "1", kKeep);
  if (windows) setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", kKeep);
}

Result<std::int64_t> count_devices() {
  int count = 0;
  const cudaError_t status = cudaGetDeviceCount(&count);
  static_cast<void>(cudaGetLastError());  // the error is reported here, so the next launch must not
                                          // report it again
  if (status == cudaErrorNoDevice || (status == cudaSuccess && count == 0))
    return fail("CUDA", "sees no GPU on this machine", Fault::environment);
  MFSDP_TRY(check(status, "CUDA"));
  return count;
}

Result<Device> open_device(std::int64_t local_rank) {
  MFSDP_LET(count, count_devices());
  if (local_rank < 0 || local_rank >= count)
    return fail("CUDA",
                fmt::format("rank {} of this host has no GPU: {} are visible", local_rank, count),
                Fault::environment);
  Device device{.number = static_cast<int>(local_rank), .name = {}, .memory = {}};
  const std::string place = fmt::format("GPU {}", local_rank);
  MFSDP_TRY(check(cudaSetDevice(device.number), "cudaSetDevice", place));
  MFSDP_TRY(check(cudaFree(nullptr), "cudaFree", place));  // creates the context
  cudaDeviceProp properties{};
  MFSDP_TRY(
      check(cudaGetDeviceProperties(&properties, device.number), "cudaGetDeviceProperties", place));
  device.name = properties.name;
  if (!has_code_for_device())
    return fail(place,
                fmt::format("{} has compute capability {}.{}, for which this build has no "
                            "code (CMAKE_CUDA_ARCHITECTURES)",
                            device.name, properties.major, properties.minor),
                Fault::environment);
  std::size_t available = 0;
  std::size_t total = 0;
  MFSDP_TRY(check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo", place));
  device.memory = Bytes(static_cast<std::int64_t>(total));
  return device;
}

namespace {

/// CUDA's number is 1000 * major + 10 * minor.
std::string cuda_version(int number) {
  return number > 0 ? fmt::format("{}.{}", number / 1000, number % 1000 / 10) : "";
}

/// The libraries' number is 10000 * major + 100 * minor.
std::string library_version(std::int64_t number) {
  if (number <= 0) return "";
  return fmt::format("{}.{}.{}", number / 10'000, number % 10'000 / 100, number % 100);
}

}  // namespace

LibraryVersions library_versions() {
  LibraryVersions versions;
  int number = 0;
  if (cudaDriverGetVersion(&number) == cudaSuccess) versions.driver = cuda_version(number);
  if (cudaRuntimeGetVersion(&number) == cudaSuccess) versions.runtime = cuda_version(number);
  if (ncclGetVersion(&number) == ncclSuccess) versions.nccl = library_version(number);
  versions.cudnn = library_version(static_cast<std::int64_t>(cudnnGetVersion()));
  if (load_cublas_lt())
    versions.cublaslt = library_version(static_cast<std::int64_t>(cublas_lt().version()));
  return versions;
}

Result<Bytes> taken_memory() {
  std::size_t available = 0;
  std::size_t total = 0;
  MFSDP_TRY(check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo"));
  return Bytes(static_cast<std::int64_t>(total - available));
}

}  // namespace mfsdp::cuda
