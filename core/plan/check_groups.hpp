// Whether groups are cut as the configuration says, and buffers hold what fits into them.
#pragma once

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Checks that groups have the configured optimizers, are cut as config.strategy and its like say,
/// in shards that are multiples of their chunk, and hold no more than they have room for; and that
/// what buffers say that they hold ends inside of them. Requires a program without
/// structure_faults() of a valid configuration. Throws OverflowError where sizes leave 63 bits.
[[nodiscard]] Result<void> check_groups(const Program& program);

}  // namespace mfsdp
