// Every rank of the mesh by itself: which collectives it issues on each of its communicators, and
// whether all ranks together come to the end.
//
// A rank's plan is reduced to its collectives, each with how many of every communicator have surely
// ended before it begins. Then all ranks run: a collective ends when each of its members has begun
// it. No rank's progress blocks another rank, so if one order of running ends, all do; where it
// stops there is a cycle of waits.
//
//   rank 0   gather 0 . . . reduce 0         ranks that gather together are not those that reduce
//   rank 1   gather 0 . . . . . reduce 1     together, and rank 3 waits for rank 0 by way of both
//   rank 2     gather 1 . . reduce 0
//   rank 3     gather 1 . . . . reduce 1
//
// Sends and recvs between two ranks match in their order: a rank's n-th send to a peer is
// the peer's n-th recv from it. Neither ends before both ranks have come to it. On one communicator
// a rank does them one after the other, those of a group at once.
#pragma once

#include <cstdint>
#include <span>

#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// Finds MF201, MF202, MF203 and MF206 between single ranks. `classes` are plans of programs of one
/// mesh with equal communicators; `class_of` names the class of every rank. Takes time for each
/// collective of each rank, and memory for each communicator of each rank beside the plans.
/// Returns how many collectives ranks came to.
std::int64_t check_every_rank(std::span<const UnrolledPlan* const> classes,
                              std::span<const std::uint32_t> class_of, FindingList& findings);

}  // namespace mfsdp
