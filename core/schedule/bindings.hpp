// Finds the records that each wait binds to, from the plan's host order.
#pragma once

#include <span>

#include "core/plan/plan.hpp"

namespace mfsdp {

/// Fills in the bindings of every wait and host wait: the latest record of its event at issue, for
/// every path through the segments. Records in the waiting segment or an earlier one of this step
/// bind with distance 0, others with distance 1. Where the plan has passes or lags, or `events`
/// have instances, three steps are run through: a wait binds to the records of its instance that it
/// gets there.
void resolve_bindings(Plan& plan, std::span<const Event> events = {});

}  // namespace mfsdp
