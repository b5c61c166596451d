// Whether the host receives the loss and the gradient norm of each step, and whether only the right
// ops touch the host's buffers (ports).
#pragma once

#include <span>

#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// Finds a plan that adds up a loss and does not bring it to the host in the same step (MF115): a
/// later copy must contain the results of loss_finish and norm_finish, the loss first, and fill the
/// host's report. Likewise of the log-probabilities in a plan of role logprob. Finds other ops that
/// write a port: MF115, or MF313 for the loss scale, which only norm_finish may update.
void check_host_ports(const Program& program, const ProgramIndex& index, const Plan& plan,
                      FindingList& findings);

/// Finds classes of ranks that hold their configuration's model and do not train it or do not
/// evaluate it: a plan of role train, eval or logprob takes no tokens or finishes no loss in any
/// class, or a port is missing or of another size (MF115). Programs of other models are left alone.
void check_trains_model(std::span<const Program* const> classes, FindingList& findings);

}  // namespace mfsdp
