// The buffers that are live between segments.
#pragma once

#include <span>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// Sets `live_in` and `live_out` of all segments from the acquires and releases of their ops.
/// `first`: buffers that are live before the first segment. A release of a buffer that is not live
/// changes nothing.
void state_live_buffers(Plan& plan, std::span<const BufferId> first = {});

}  // namespace mfsdp
