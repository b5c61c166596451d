// Windows: registered memory of a communicator whose collectives go from window to window.
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
// goes from window to window; otherwise it falls back to its rings and says nothing. What must be
// so for that, the plan states, and is checked here:
//
//   both operands lie in pools that are registered with the collective's communicator;
//   they begin at one offset on all of its members: in-place operands at a rank's own do not;
//   the transport can do it: copy engines gather and deal out, and cannot add; kernels do not deal
//   out, and add no fp64 and no integers;
//   the collective stands in no group (NCCL before 2.28.7 corrupts grouped ones);
//   all of its members are of one class of ranks, so that pools are alike.
#pragma once

#include <cstdint>
#include <span>

#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/program_index.hpp"

namespace mfsdp {

/// Whether collectives of the communicator go from window to window.
[[nodiscard]] inline bool uses_symmetric_memory(const Communicator& communicator) {
  return communicator.transport != Transport::nccl;
}

/// MF205 for collectives that need windows and would not go through them. Requires that all ids
/// resolve.
void check_symmetric_memory(const Program& program, const ProgramIndex& index,
                            FindingList& findings);

/// MF205 for collectives of one class whose communicator has windows and members of other classes.
/// `class_of`: by rank.
void check_symmetric_classes(const Program& program, const ProgramIndex& index,
                             std::span<const std::uint32_t> class_of, FindingList& findings);

}  // namespace mfsdp
