// Whether every kernel reads the weights of its step.
//
// Compute weights begin at version 0, an update makes the next version of the slice that it writes,
// and collectives carry versions with the elements. In step t every kernel is to read version t of
// whole parameters of its own unit; frozen ones stay at 0. Host order is one of the orders that the
// plan allows, and where nothing races (races.hpp) all of them compute the same.
#pragma once

#include "verify/proof/ledger/followed_ops.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// Finds MF401 to MF404, at most one of a rule for each group.
void check_weights(const UnrolledPlan& unrolled, const Layouts& layouts,
                   const FollowedOps& followed, FindingList& findings);

}  // namespace mfsdp
