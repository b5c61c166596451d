// Checks that groups are sharded as configured, and that the contents of buffers fit.
#pragma once

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Checks that groups have the configured optimizers, are sharded by the configured strategies into
/// multiples of their chunk, and contain all their parameters; and that the stated contents of
/// buffers are inside them. Requires a program without structure_faults() and a valid
/// configuration. Throws OverflowError where sizes exceed 63 bits.
[[nodiscard]] Result<void> check_groups(const Program& program);

}  // namespace mfsdp
