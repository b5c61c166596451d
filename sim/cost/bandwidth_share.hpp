// Bandwidth of memory-bound kernels relative to a device copy.
#pragma once

#include "core/plan/kernel_spec.hpp"

namespace mfsdp {

/// Relative to a copy of 1 GiB, without the launch. Measured for our own kernels on H100 and H200.
/// Kinds that were not measured get the share of a kernel that reads several streams.
[[nodiscard]] double bandwidth_share(KernelKind kind);

}  // namespace mfsdp
