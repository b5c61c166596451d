// Whether an update's operands are one slice of one group, and ops touch the group that they name.
#pragma once

#include "verify/proof/ledger/layouts.hpp"

namespace mfsdp {

/// Finds updates whose gradient, weights and states are not the same shard of one group, are empty,
/// or do not have the stated number of elements. Finds ops that state another group than they touch
/// (MF504).
void check_updates(const Program& program, const Layouts& layouts, FindingList& findings);

}  // namespace mfsdp
