// An op's operands share no bytes of which it writes some: kernels read while they write, and
// copies and collectives are not told to begin at an end. What a kernel works on in place is one
// operand. A collective may have its part of the other operand's memory, the rank's own:
//
//   all_gather        [ rank 0 | rank 1 | ... ]   each reads its part of what it writes
//   reduce_scatter    [ rank 0 | rank 1 | ... ]   each writes its part of what it reads
//   all_reduce        the same bytes on every rank
#pragma once

#include <vector>

#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/accesses.hpp"

namespace mfsdp {

/// MF007, of collectives MF204, of those that sum MF505. Of a program whose ids resolve, with the
/// tables of its plans.
void check_shared_bytes(const Program& program, const ProgramIndex& index,
                        const std::vector<AccessTable>& tables, FindingList& findings);

}  // namespace mfsdp
