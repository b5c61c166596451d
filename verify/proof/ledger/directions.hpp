// Whether what an update moves weights along is this step's momentum, each matrix of it
// orthogonalised once and whole: from the kernels `momentum` through all_to_alls, in which a rank
// gets all of one block for a slice of each, to the updates.
#pragma once

#include "verify/findings/finding_list.hpp"
#include "verify/proof/ledger/followed_ops.hpp"
#include "verify/proof/ledger/layouts.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// Finds directions of other steps, groups or elements, and matrices that are orthogonalised not at
/// all, twice or in parts (MF405).
void check_directions(const UnrolledPlan& unrolled, const Layouts& layouts,
                      const FollowedOps& followed, FindingList& findings);

}  // namespace mfsdp
