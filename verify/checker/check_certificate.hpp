// The checker: reads a plan's JSON and a certificate, and accepts or refuses. It shares no code
// with what built or proved the plan, and takes nothing from a certificate without working it out
// again from the plan: a certificate can make it refuse a sound plan, never accept another one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// What was re-checked.
struct CheckedPlan {
  std::string hash;            ///< of the plan, worked out again
  std::int64_t instances = 0;  ///< of ops, in two steps of all plans
  std::int64_t orderings = 0;  ///< clocks of the certificate that were justified
  std::int64_t accesses = 0;   ///< that were compared with those before them
  std::int64_t gradients = 0;  ///< ranges of elements that were read and held what they should
};

/// The error is the refusal: which place, what was claimed, what is so.
[[nodiscard]] Result<CheckedPlan> check_certificate(std::string_view plan_json,
                                                    std::string_view certificate_json);

}  // namespace mfsdp
