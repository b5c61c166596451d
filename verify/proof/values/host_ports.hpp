// Whether the host hears of each step: its loss, and its gradient's norm where there is one.
#pragma once

#include <span>

#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// Finds a plan that sums a loss and does not bring it to the host in the same step (MF115): what
/// loss_finish and norm_finish write is to lie in what a later copy brings, the loss at its begin,
/// and the copy is to fill the host's buffer. Finds what else writes a port: MF115, and MF313 where
/// it is the loss scale, which norms keep.
void check_host_ports(const Program& program, const ProgramIndex& index, const Plan& plan,
                      FindingList& findings);

/// Finds classes of ranks that hold their configuration's model and do not train it or do not
/// evaluate it: plan "train" or "eval" takes no tokens or finishes no loss in any class, or a port
/// is missing or of another size (MF115). Programs of other models are left alone.
void check_trains_model(std::span<const Program* const> classes, FindingList& findings);

}  // namespace mfsdp
