// The checker reads a plan's JSON and a certificate, and accepts or refuses. It shares no code with
// the planner and the proofs. It derives every claim of a certificate again from the plan: a
// certificate can make it refuse a sound plan, but never accept a wrong one.
//
// coverage() lists what is checked, and what is not. Two steps are checked with each repeated
// segment twice. All repetitions are checked where these use other instances of buffers and events,
// or work on earlier microbatches, and in jobs of several classes. The checker refuses what it has
// no rules for: kernels that are no steps of the configured model; registered memory of rings;
// classes that are not the stages along the axis pp; weights that several stages have;
// collectives of several stages other than sends and receives; millions of runs of ops.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// One kind of check that the proofs make.
struct Coverage {
  std::string_view check;  ///< "races"
  bool covered = false;    ///< by an accepted certificate
  std::string_view words;  ///< what is checked, or what is not
  std::string_view rules;  ///< of the proofs: "MF101 MF108"; empty where they have none
};

/// Lists what an accepted certificate covers, then what it does not.
[[nodiscard]] std::span<const Coverage> coverage();

/// The hash of an accepted plan, and counts of what was checked.
struct CheckedPlan {
  std::string hash;            ///< of the plan, computed by the checker
  std::int64_t instances = 0;  ///< of ops, in two steps of all plans
  std::int64_t orderings = 0;  ///< clocks of the certificate that were justified
  std::int64_t accesses = 0;   ///< that were compared with those before them
  std::int64_t gradients = 0;  ///< ranges of elements that were read and held what they should
};

/// The error is the refusal: which place, what was claimed, what is so.
[[nodiscard]] Result<CheckedPlan> check_certificate(std::string_view plan_json,
                                                    std::string_view certificate_json);

}  // namespace mfsdp
