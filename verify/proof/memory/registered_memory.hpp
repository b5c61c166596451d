// Registered buffers: memory that peers read and write during their own instance of a collective,
// where that has no barrier at its end: NCCL's rings. (Collectives over symmetric memory
// have one: symmetric_memory.hpp.)
//
// Collective k of a communicator ends on a rank when all peers have begun it, not when they have
// ended it. So a peer may touch this rank's registered memory for k from the time that k-1 has
// begun here until k+1 has ended here:
//
//   this rank   use A ... k-1 ......... k ......... k+1 ... use B
//   a peer                |<-- touches this rank's memory for k -->|
//
// A conflicting use must be before k-1 or follow k+1. Ordinary buffers need none of this: NCCL
// copies through memory of its own.
#pragma once

#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/accesses.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// MF205 for the pools that are registered with a communicator of rings: of each buffer the first
/// conflict.
void check_registered_memory(const UnrolledPlan& unrolled, const AccessTable& table,
                             FindingList& findings);

}  // namespace mfsdp
