// Bandwidth of memory-bound kernels relative to a device copy.
#pragma once

#include "core/plan/op.hpp"

namespace mfsdp {

/// Relative to a copy of 1 GiB, without the launch. Measured for our own kernels on H100 and H200;
/// norms and sums of biases by the width of their rows. Kinds that were not measured get the share
/// of a kernel that reads several streams.
[[nodiscard]] double bandwidth_share(const Kernel& kernel);

}  // namespace mfsdp
