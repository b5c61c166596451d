// The accesses to a buffer compared pair by pair: slow, exact, and only for buffers that the pass
// over the instances suspects.
#pragma once

#include <vector>

#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/accesses.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// MF101 for the buffers marked in `suspect`: of each and every two chains, the first pair in host
/// order. Acquire and release write the whole buffer; a release is missing an edge from each use of
/// its lifetime, also from one that is issued after it.
void compare_pairs(const UnrolledPlan& unrolled, const AccessTable& table,
                   const std::vector<char>& suspect, FindingList& findings);

}  // namespace mfsdp
