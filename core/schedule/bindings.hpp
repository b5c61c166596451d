// Finds the records that each wait binds to, from the plan's host order.
#pragma once

#include "core/plan/plan.hpp"

namespace mfsdp {

/// Fills in the bindings of every wait and host wait: the latest record of its event at issue, for
/// every path through the segments. Records in the waiting segment or an earlier one of this step
/// bind with distance 0, others with distance 1.
void resolve_bindings(Plan& plan);

}  // namespace mfsdp
