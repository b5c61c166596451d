// Which records the waits of an altered plan get.
#pragma once

#include "core/plan/plan.hpp"

namespace mfsdp {

/// Binds every wait of the plan to the records that are the latest of its event when the host
/// issues it, in two steps with repeated segments twice; where events take turns, in three steps
/// with all repetitions. A wait that gets none, or whose bindings say so already, keeps what it
/// has.
void rebind(Plan& plan, const std::vector<Event>& events);

}  // namespace mfsdp
