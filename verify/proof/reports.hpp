// Whether the host hears of each step: its loss, and its gradient's norm where there is one.
#pragma once

#include "verify/findings/finding_list.hpp"
#include "verify/proof/unrolled_plan.hpp"

namespace mfsdp {

/// Finds a plan that sums a loss and does not bring it to the host in the same step (MF115): what
/// loss_finish and norm_finish write is to lie in what a later copy brings, the loss at its begin,
/// and the copy is to fill the host's buffer.
void check_reports(const Program& program, const ProgramIndex& index, const Plan& plan,
                   FindingList& findings);

}  // namespace mfsdp
