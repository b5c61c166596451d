// The checker: reads a plan's JSON and a certificate, and accepts or refuses. It shares no code
// with what built or proved the plan, and takes nothing from a certificate without working it out
// again from the plan: a certificate can make it refuse a sound plan, never accept another one.
//
// Re-checked, for two steps of every plan with repeated segments twice:
//   order        each number of each clock, by streams, events, communicators, groups and the host
//   races        every access follows what it conflicts with, by the bytes that operands span on
//                all ranks (a plan that is right only by the gaps between them is refused)
//   lifetimes    accesses between acquire and release, no two live buffers in one place
//   collectives  count, dtype and reduction fit operands and communicator; the sequence is hashed
//   gradients    norm and updates read each use of each microbatch of each rank once, nothing else
//   tiling       slices that operands touch are equal parts of their group; operands of an update
//                are one slice; every trainable group is updated once a step
// Not re-checked: records that waits name, what segments state as live, versions of weights, 1/T
// and the norm, dtypes of sums, places of parameters in groups, bounds. Refused, as nothing is
// known of them: registered memory and operands with device scalars; classes with plans of their
// own, sends and receives, buffers and events that take turns, ops that work on an earlier
// microbatch.
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
