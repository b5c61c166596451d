// Binds the waits of an altered plan to event records.
#pragma once

#include "core/plan/plan.hpp"

namespace mfsdp {

/// Binds every wait to the latest records of its event at the time when the host issues the wait.
/// Looks at two steps with two repetitions of each segment; if events take turns, at three steps
/// with all repetitions. A wait without such records, or with these bindings already, is unchanged.
void rebind(Plan& plan, const std::vector<Event>& events);

}  // namespace mfsdp
