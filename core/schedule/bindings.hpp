// Which record each wait binds to, from the plan's host order alone.
#pragma once

#include "core/plan/plan.hpp"

namespace mfsdp {

/// Fills in the bindings of every wait and host wait: the latest record of its event at issue, on
/// every way through the segments that leads to it. Records that the waiting segment or an earlier
/// one of this step ran bind with distance 0, others with distance 1.
void resolve_bindings(Plan& plan);

}  // namespace mfsdp
