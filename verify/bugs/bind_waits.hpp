// Binds the waits of a plan that was edited.
#pragma once

#include <span>

#include "core/plan/plan.hpp"

namespace mfsdp::bugs {

/// Has each wait of the plan bind to all records that it can get, as a GPU does it: the latest one
/// of its event, or of the event's instance, at issue. Where a plan has passes, lags or instances,
/// three steps are run through.
void bind_waits(Plan& plan, std::span<const Event> events);

}  // namespace mfsdp::bugs
