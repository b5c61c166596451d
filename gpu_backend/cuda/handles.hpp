// Owners of CUDA's and NCCL's handles. Errors of freeing are ignored, because no caller could
// handle them.
#pragma once

#include <cuda_runtime.h>
#include <nccl.h>

#include <cstddef>
#include <memory>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp::cuda {

struct DestroyStream {
  void operator()(CUstream_st* stream) const { cudaStreamDestroy(stream); }
};
struct DestroyEvent {
  void operator()(CUevent_st* event) const { cudaEventDestroy(event); }
};
struct FreeDevice {
  void operator()(std::byte* memory) const { cudaFree(memory); }
};
struct FreePinned {
  void operator()(std::byte* memory) const { cudaFreeHost(memory); }
};
struct FreeCommunication {
  void operator()(std::byte* memory) const { ncclMemFree(memory); }
};

using OwnedStream = std::unique_ptr<CUstream_st, DestroyStream>;
using OwnedEvent = std::unique_ptr<CUevent_st, DestroyEvent>;
using DeviceMemory = std::unique_ptr<std::byte, FreeDevice>;
using PinnedMemory = std::unique_ptr<std::byte, FreePinned>;
/// Memory that NCCL can map into other ranks.
using CommunicationMemory = std::unique_ptr<std::byte, FreeCommunication>;

/// A stream that does not wait for the default stream. Lower numbers have priority.
[[nodiscard]] Result<OwnedStream> make_stream(int priority);

/// `timed`: its records have times, at a small cost.
[[nodiscard]] Result<OwnedEvent> make_event(bool timed);

/// cudaEventQuery. CUDA keeps "not ready" as its last error, and the next launch would report it.
/// Therefore this clears it.
[[nodiscard]] cudaError_t query_event(cudaEvent_t event);

// Errors name the bytes and `what` they are for.
[[nodiscard]] Result<DeviceMemory> allocate_device(std::size_t bytes, std::string_view what);
[[nodiscard]] Result<PinnedMemory> allocate_pinned(std::size_t bytes, std::string_view what);
[[nodiscard]] Result<CommunicationMemory> allocate_communication(std::size_t bytes,
                                                                 std::string_view what);

}  // namespace mfsdp::cuda
