// Symmetric memory: registered memory that all members of a communicator address at equal offsets
// (NCCL calls it a window). Collectives can read and write peers' memory directly there.
//
// NCCL's symmetric kernels and copy-engine collectives begin and end with a barrier of all members
// (src/device/symmetric and src/ce_coll.cc of NCCL 2.28). So between ranks there are two edges for
// collective k: no member touches a peer's memory before all have begun k, and none goes on before
// all have ended it.
//
//   this rank   use A ... [k ......................] ... use B
//   a peer           [k ...|<- touches this rank ->|]
//
// A peer's accesses lie within this rank's own k, in the bytes that this rank's operands name, and
// so the races of one rank (races.hpp) are those between ranks. This holds only where NCCL really
// uses symmetric memory; otherwise it silently falls back to its rings. Conditions for that, which
// are checked here:
//
//   both operands lie in pools that are registered with the collective's communicator;
//   they begin at one offset on all of its members: in-place operands at a rank's own do not;
//   the transport can do it: copy engines do all_gather and all_to_all, and cannot add; symmetric
//   kernels have no all_to_all, and add neither fp64 nor integers;
//   the collective is in no group (NCCL before 2.28.7 corrupts grouped ones);
//   all of its members are of one class of ranks, so that pools are alike.
#pragma once

#include <cstdint>
#include <span>

#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/program_index.hpp"

namespace mfsdp {

/// Whether collectives of the communicator use symmetric memory.
[[nodiscard]] inline bool uses_symmetric_memory(const Communicator& communicator) {
  return communicator.transport != Transport::nccl;
}

/// MF205 for collectives that ask for symmetric memory and cannot use it. Requires that all ids
/// resolve.
void check_symmetric_memory(const Program& program, const ProgramIndex& index,
                            FindingList& findings);

/// MF205 for collectives over symmetric memory whose communicator has members of other classes.
/// `class_of`: by rank.
void check_symmetric_classes(const Program& program, const ProgramIndex& index,
                             std::span<const std::uint32_t> class_of, FindingList& findings);

}  // namespace mfsdp
