// Races, lifetimes and the order of collectives of one plan, over two steps with repeated segments
// twice. Instances of ops are numbered in host order; the host's work on the memory of a copy is
// one of its own before the copy. For what follows what, see verify/proof/unrolled_plan.hpp, whose
// rules are those of the design; here clocks come from the certificate, and each number of one is
// accepted only if the instance's own stream, the host, its wait's record or the collective
// before it on its communicator brings it.
//
// Every byte of a pool knows the buffer that owns it, its last write and the reads since. Each
// access must follow those that it conflicts with; acquire and release write all their bytes.
// An operand counts as all bytes that it spans on all ranks: a plan that is right only because the
// bytes between are free is refused.
#pragma once

#include "verify/checker/check_certificate.hpp"
#include "verify/checker/plan_view.hpp"

namespace mfsdp::checker {

/// `clocks`: the certificate's [[instance, chain, count, chain, count...]...] of this plan.
void check_races(const PlanView& view, const Plan& plan, const nlohmann::json& clocks,
                 CheckedPlan& figures);

}  // namespace mfsdp::checker
