// The ledger's smaller checks; each source states its rule.
#pragma once

#include "verify/findings/finding_list.hpp"
#include "verify/proof/ledger/followed_ops.hpp"
#include "verify/proof/ledger/layouts.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// Finds updates whose gradient, weights and states are not the same shard of one group, are empty,
/// or do not have the stated number of elements. Finds ops that state another group than they touch
/// (MF504).
void check_updates(const Program& program, const Layouts& layouts, FindingList& findings);

/// Finds MF401 to MF404, at most one of a rule for each group.
void check_weights(const UnrolledPlan& unrolled, const Layouts& layouts,
                   const FollowedOps& followed, FindingList& findings);

/// Finds directions of other steps, groups or elements, and matrices that are orthogonalised not at
/// all, twice or in parts (MF405).
void check_directions(const UnrolledPlan& unrolled, const Layouts& layouts,
                      const FollowedOps& followed, FindingList& findings);

/// Finds MF312. Hand-written plans, and pipeline stages after the first, may state microbatches
/// and read no tokens. Negative numbers are errors.
void check_microbatches(const UnrolledPlan& unrolled, FindingList& findings);

}  // namespace mfsdp
