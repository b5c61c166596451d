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

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "core/plan/plan.hpp"

namespace mfsdp {

[[nodiscard]] constexpr std::int64_t instance_of(std::int64_t begun, std::int64_t lag,
                                                 std::int64_t instances) {
  const std::int64_t rest = (begun - 1 - lag) % instances;
  return rest < 0 ? rest + instances : rest;
}

/// Instances of buffers have slots, numbered in the order of the program's buffers. By buffer: the
/// slot of its first instance; then the number of slots.
[[nodiscard]] inline std::vector<std::uint32_t> first_slots(const Program& program) {
  std::vector<std::uint32_t> slots{0};
  slots.reserve(program.buffers.size() + 1);
  for (const Buffer& buffer : program.buffers)
    slots.push_back(slots.back() + static_cast<std::uint32_t>(buffer.instances.value_or(1)));
  return slots;
}

/// The least number of microbatches after which all buffers and events of the program are back at
/// the same instances; `most` if it is more.
[[nodiscard]] inline std::int64_t rotation_of(const Program& program,
                                              std::int64_t most = std::int64_t{1} << 20) {
  std::int64_t all = 1;
  for (const Buffer& buffer : program.buffers)
    all = std::min(most, std::lcm(all, buffer.instances.value_or(1)));
  for (const Event& event : program.events)
    all = std::min(most, std::lcm(all, event.instances.value_or(1)));
  return all;
}

/// Bytes from one instance of a buffer to the next.
[[nodiscard]] inline Bytes instance_pitch(const Buffer& buffer, const Pool& pool) {
  return Bytes(round_up(buffer.size.value, pool.alignment));
}

}  // namespace mfsdp
