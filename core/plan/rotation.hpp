// Buffers and events with several instances, used in rotation by microbatch.
//
// Each run of a segment begins `microbatches`. An op with lag l works on the l-th microbatch before
// the newest one of its step; with n instances it uses number
//
//   (microbatches begun in this step - 1 - l) mod n,  from 0 to n - 1
//
// This also applies to ops outside any microbatch, such as a wait of the optimizer. Counts restart
// with each step, so that all steps are equal.
//
//   microbatches begun    1     2     3     4     4         n = 2
//   forward, lag 0        0     1     0     1
//   backward, lag 1             0     1     0
//   the last backward, lag 0                      1
#pragma once

#include <cstdint>

#include "core/plan/plan.hpp"

namespace mfsdp {

[[nodiscard]] constexpr std::int64_t instance_of(std::int64_t begun, std::int64_t lag,
                                                 std::int64_t instances) {
  const std::int64_t rest = (begun - 1 - lag) % instances;
  return rest < 0 ? rest + instances : rest;
}

/// Bytes from one instance of a buffer to the next.
[[nodiscard]] inline Bytes instance_pitch(const Buffer& buffer, const Pool& pool) {
  return Bytes(round_up(buffer.size.value, pool.alignment));
}

}  // namespace mfsdp
