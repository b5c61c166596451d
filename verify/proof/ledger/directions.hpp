// Muon: whether each update uses this step's momentum, with each matrix orthogonalised once as a
// whole. Followed are the kernels `momentum`, the all_to_alls that give each rank one whole block
// for its shards of all blocks, the orthogonalisation, and the updates.
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
