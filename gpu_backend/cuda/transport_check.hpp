// By what NCCL really moves a collective's bytes. Where a condition of its windows fails it takes
// its rings and says nothing, and no result differs: what it queues is looked at.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"

namespace mfsdp::cuda {

/// The oldest NCCL whose collectives go from window to window by copy engines: 2.28.3, as
/// ncclGetVersion() counts.
inline constexpr int kWindowsSince = 22803;

/// Names of the kernels that `queue` puts on the stream. They are captured and never run, so that
/// nothing is timed and no byte moves. Errors: of CUDA, and those of `queue`.
[[nodiscard]] Result<std::vector<std::string>> queued_kernels(
    cudaStream_t stream, const std::function<Result<void>()>& queue);

/// Whether these kernels are those of the transport: none at all for copy engines, one of NCCL's
/// symmetric ones for windows. The error names what was queued instead. Pure.
[[nodiscard]] Result<void> check_transport(Transport transport,
                                           std::span<const std::string> kernels);

/// "copy engines", or the symmetric kernel's name: what is told of a run.
[[nodiscard]] std::string transport_text(Transport transport, std::span<const std::string> kernels);

/// Whether the library can do it and all members of a communicator are on one host; `hosts` are
/// theirs. Pure.
[[nodiscard]] Result<void> check_windows_possible(Transport transport, int nccl_version,
                                                  std::span<const std::string> hosts);

}  // namespace mfsdp::cuda
