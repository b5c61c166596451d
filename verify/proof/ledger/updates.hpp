// Whether an update's operands are one slice of one group, and ops touch the group that they name.
#pragma once

#include "verify/proof/ledger/layouts.hpp"

namespace mfsdp {

/// Finds updates whose gradient, weights and state are not the same slice of the same group, are
/// empty, or have a number of elements that is not the kernel's, and ops that name another group
/// than they touch (MF504).
void check_updates(const Program& program, const Layouts& layouts, FindingList& findings);

}  // namespace mfsdp
