// The verdict of the checker on a plan whose certificate has all claims, proved or not.
#pragma once

#include <string>

#include "core/plan/plan_json.hpp"
#include "verify/checker/check_certificate.hpp"
#include "verify/proof/certificate.hpp"

namespace mfsdp::test {

inline Result<CheckedPlan> checked(const Job& job) {
  MFSDP_LET(certificate, unproved_certificate(job));
  return check_certificate(to_canonical_json(job), certificate);
}
inline Result<CheckedPlan> checked(const Program& program) {
  return checked(Job{.programs = {program}});
}

/// The refusal, or nothing.
inline std::string checker_refusal(const auto& plan) {
  const auto accepted = checked(plan);
  return accepted ? std::string() : accepted.error().message();
}

}  // namespace mfsdp::test
