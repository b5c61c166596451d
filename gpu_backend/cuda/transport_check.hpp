// Checks how NCCL really moves a collective's bytes. If a condition of registered memory fails,
// NCCL silently uses its rings, with the same results. Therefore the queued kernels are inspected.
#pragma once

#include <cuda_runtime.h>

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/vocabulary.hpp"

namespace mfsdp::cuda {

/// The oldest NCCL whose collectives move registered memory by copy engines: 2.28.3, as
/// ncclGetVersion() counts.
inline constexpr int kWindowsSince = 22803;

/// Names of the kernels that `queue` puts on the stream. They are captured and never run, so
/// nothing is timed and no byte moves. Errors: those of CUDA and of `queue`.
[[nodiscard]] Result<std::vector<std::string>> queued_kernels(
    cudaStream_t stream, const std::function<Result<void>()>& queue);

/// Whether these kernels are those of the transport: none for copy engines, a symmetric one of NCCL
/// for symmetric kernels. The error names the queued kernels. Pure.
[[nodiscard]] Result<void> check_transport(Transport transport,
                                           std::span<const std::string> kernels);

/// "copy engines", or the symmetric kernel's name, for the record of a run.
[[nodiscard]] std::string transport_text(Transport transport, std::span<const std::string> kernels);

/// Whether the library supports it and all members of a communicator are on one host; `hosts` are
/// those of the members. Pure.
[[nodiscard]] Result<void> check_windows_possible(Transport transport, int nccl_version,
                                                  std::span<const std::string> hosts);

}  // namespace mfsdp::cuda
