// The verdict of the checker on a program whose certificate has all claims, proved or not.
#pragma once

#include <string>

#include "core/plan/plan_json.hpp"
#include "verify/checker/check_certificate.hpp"
#include "verify/proof/certificate.hpp"

namespace mfsdp::test {

inline Result<CheckedPlan> checked(const Program& program) {
  return check_certificate(to_canonical_json(program), unproved_certificate(program));
}

/// The refusal, or nothing.
inline std::string checker_refusal(const Program& program) {
  const auto accepted = checked(program);
  return accepted ? std::string() : accepted.error().message();
}

}  // namespace mfsdp::test
