// Kernels for fault injection and for the choice of algorithms; they are not in the plan.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"

namespace mfsdp::cuda {

/// Whether this build has code that the current device runs.
[[nodiscard]] bool has_code_for_device();

/// Keeps the stream busy for about `duration`, with one thread.
[[nodiscard]] Result<void> delay(Nanos duration, cudaStream_t stream);

/// Keeps the stream busy until *ended, in pinned memory, is not 0.
[[nodiscard]] Result<void> stop_until(const volatile std::uint32_t* ended, cudaStream_t stream);

/// Fills memory with numbers of ordinary size, positive and negative, valid both as bf16 and as
/// fp32. `bytes` begins on a multiple of 4; an incomplete word at the end is not written.
[[nodiscard]] Result<void> fill_with_numbers(std::span<std::byte> bytes, cudaStream_t stream);

}  // namespace mfsdp::cuda
