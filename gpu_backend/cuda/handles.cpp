#include "gpu_backend/cuda/handles.hpp"

#include <fmt/format.h>

#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {
namespace {

std::string place(std::string_view what, std::size_t bytes) {
  return fmt::format("{}, {} bytes", what, bytes);
}

}  // namespace

Result<OwnedStream> make_stream(int priority) {
  cudaStream_t stream = nullptr;
  MFSDP_TRY(check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority),
                  "cudaStreamCreateWithPriority"));
  return OwnedStream(stream);
}

Result<OwnedEvent> make_event(bool timed) {
  cudaEvent_t event = nullptr;
  MFSDP_TRY(
      check(cudaEventCreateWithFlags(&event, timed ? cudaEventDefault : cudaEventDisableTiming),
            "cudaEventCreateWithFlags"));
  return OwnedEvent(event);
}

cudaError_t query_event(cudaEvent_t event) {
  const cudaError_t status = cudaEventQuery(event);
  if (status == cudaErrorNotReady) static_cast<void>(cudaGetLastError());
  return status;
}

Result<DeviceMemory> allocate_device(std::size_t bytes, std::string_view what) {
  void* memory = nullptr;
  MFSDP_TRY(check(cudaMalloc(&memory, bytes), "cudaMalloc", place(what, bytes)));
  return DeviceMemory(static_cast<std::byte*>(memory));
}

Result<PinnedMemory> allocate_pinned(std::size_t bytes, std::string_view what) {
  void* memory = nullptr;
  MFSDP_TRY(check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cudaHostAlloc",
                  place(what, bytes)));
  return PinnedMemory(static_cast<std::byte*>(memory));
}

Result<CommunicationMemory> allocate_communication(std::size_t bytes, std::string_view what) {
  void* memory = nullptr;
  MFSDP_TRY(check(ncclMemAlloc(&memory, bytes), "ncclMemAlloc", place(what, bytes)));
  return CommunicationMemory(static_cast<std::byte*>(memory));
}

}  // namespace mfsdp::cuda
