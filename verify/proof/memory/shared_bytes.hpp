// An op's operands share no bytes of which it writes some: kernels read while they write, and
// copies and collectives begin anywhere. An in-place kernel has one operand
// for its memory. A collective may have its part of the other operand's memory, the rank's own:
//
//   all_gather        [ rank 0 | rank 1 | ... ]   each reads its part of what it writes
//   reduce_scatter    [ rank 0 | rank 1 | ... ]   each writes its part of what it reads
//   all_reduce        the same bytes on every rank
#pragma once

#include <vector>

#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/accesses.hpp"

namespace mfsdp {

/// MF007; MF204 for collectives, MF505 for those that sum. For a program whose ids resolve, with the
/// tables of its plans.
void check_shared_bytes(const Program& program, const ProgramIndex& index,
                        const std::vector<AccessTable>& tables, FindingList& findings);

}  // namespace mfsdp
