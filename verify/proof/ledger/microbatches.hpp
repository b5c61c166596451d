// Whether a plan begins as many microbatches as it states and the configuration asks for.
#pragma once

#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// Finds MF312. Hand-written plans, and pipeline stages after the first, may state microbatches
/// and read no tokens. Negative numbers are errors.
void check_microbatches(const UnrolledPlan& unrolled, FindingList& findings);

}  // namespace mfsdp
