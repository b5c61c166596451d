// The wall clock, for the time stamps of runs.
#pragma once

#include <chrono>
#include <cstdint>

namespace mfsdp {

/// Nanoseconds since 1970-01-01 UTC.
[[nodiscard]] inline std::int64_t unix_now_ns() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

}  // namespace mfsdp
