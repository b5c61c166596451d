// Whether a plan begins as many microbatches as it states and the configuration asks for.
#pragma once

#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// Finds MF312. Plans by hand, and of stages behind the first, may state microbatches and take no
/// tokens; none states fewer than none.
void check_microbatches(const UnrolledPlan& unrolled, FindingList& findings);

}  // namespace mfsdp
