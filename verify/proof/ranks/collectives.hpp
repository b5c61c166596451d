// Collectives: whether each fits its operands, and how many may run at once.
//
// All ranks of a class issue one plan, so they agree on the sequence of every communicator, and
// what waits for what among them is the order of one rank: it follows the host's order and has no
// cycle. Between classes neither holds by itself: see classes.hpp.
#pragma once

#include <cstdint>

#include "verify/findings/finding_list.hpp"
#include "verify/proof/order/unrolled_plan.hpp"

namespace mfsdp {

/// Count, dtype and reduction of each collective against its operands and the size of its
/// communicator (MF204). For a program whose ids resolve. `of_model`: it computes its
/// configuration's model, so that sums are of floats; other programs may stand for sums of any
/// dtype.
void check_collective_shapes(const Program& program, const ProgramIndex& index, bool of_model,
                             FindingList& findings);

/// The most collectives of different communicators that some interleaving enables at once.
/// Those of one communicator serialise. More than one need resources of the device at once.
[[nodiscard]] std::int64_t concurrent_collectives(const UnrolledPlan& unrolled);

}  // namespace mfsdp
