// Collectives of one plan: each fits its operands and its communicator, and the sequence of each
// communicator is the one that the certificate states. All ranks of a class run the plan, and a
// wait is only for what was issued before it, so a class by itself meets and ends; certificates of
// several classes match where their sequences are equal.
#pragma once

#include "verify/checker/check_certificate.hpp"
#include "verify/checker/plan_view.hpp"

namespace mfsdp::checker {

/// `sequences`: by communicator, how many collectives a step has and the hash of what they are.
void check_collectives(const PlanView& view, const Plan& plan, const nlohmann::json& sequences,
                       CheckedPlan& figures);

}  // namespace mfsdp::checker
