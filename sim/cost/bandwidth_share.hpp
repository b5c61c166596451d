// How much of a device copy's bandwidth kernels reach that move bytes and compute little.
#pragma once

#include "core/plan/kernel_spec.hpp"

namespace mfsdp {

/// Of a copy of 1 GiB, without the launch. Measured of our own kernels on H100 and H200; kinds that
/// were not have the share of a kernel that reads several streams.
[[nodiscard]] double bandwidth_share(KernelKind kind);

}  // namespace mfsdp
