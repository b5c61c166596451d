// Every rank's own elements: what all ranks reduce, gather and update covers each parameter once.
//
//   reduce_scatter, 4 ranks   rank 0 |=====|. . . . . . . . . |
//                             rank 1 |. . .|=====|. . . . . . |     in the order of members, no
//                             rank 2 |. . . . . .|=====|. . . |     gap, no element twice
//                             rank 3 |. . . . . . . . .|=====||
//
// layouts.hpp proves the same in symbols; here the intervals of every rank are computed and put
// beside each other.
#pragma once

#include <cstdint>

#include "verify/findings/finding_list.hpp"
#include "verify/proof/ledger/followed_ops.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// Finds collectives whose ranks' parts are not the members' equal parts in their order, and
/// updates that do not cover each element of a group equally often (MF506); one finding for each
/// op. Returns how many intervals of parameters ranks update; a rank that updates padding alone has
/// none.
std::int64_t check_rank_slices(const UnrolledPlan& unrolled, const Layouts& layouts,
                               const FollowedOps& followed, FindingList& findings);

}  // namespace mfsdp
