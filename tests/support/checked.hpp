// The verdicts of the proof, and of the checker on a plan whose certificate has all claims, proved or
// not.
#pragma once

#include <string>
#include <vector>

#include "core/plan/check.hpp"
#include "core/plan/plan_json.hpp"
#include "verify/checker/check_certificate.hpp"
#include "verify/findings/finding.hpp"
#include "verify/proof/certificate.hpp"
#include "verify/proof/prove.hpp"

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

/// Faults of a plan: of its structure, or else the errors of the proof by rule and message.
inline std::vector<std::string> proof_errors(const Program& program) {
  if (const auto valid = check_structure(program); !valid) return {valid.error().message()};
  std::vector<std::string> errors;
  const Proof proof = prove(program).value();
  for (const Finding& finding : proof.findings)
    if (is_error(finding.rule)) errors.push_back(finding.rule + ": " + finding.message);
  return errors;
}

/// The first of them, or nothing.
inline std::string first_proof_error(const Program& program) {
  const std::vector<std::string> errors = proof_errors(program);
  return errors.empty() ? std::string() : errors.front();
}

}  // namespace mfsdp::test
