// Numbers, times and calls as text, for reports and rules of traces.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "core/formats/kineto.hpp"

namespace mfsdp::traces {

/// "1 gather", "2 gathers"
[[nodiscard]] inline std::string counted(std::int64_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// Milliseconds with three decimals, rounded to the nearest microsecond.
[[nodiscard]] inline std::string milliseconds(Nanos time) {
  const std::int64_t micros = time.value / 1000 + (time.value % 1000 >= 500 ? 1 : 0);
  return fmt::format("{}.{:03}", micros / 1000, micros % 1000);
}

/// "reduce_scatter on stream 26 (group 1)"
[[nodiscard]] inline std::string call_words(const Trace& trace, const CollectiveCall& call) {
  const std::string& group = trace.names[call.group];
  return fmt::format("{} on stream {}{}", to_string(call.op), call.stream,
                     group.empty() ? "" : fmt::format(" (group {})", group));
}

}  // namespace mfsdp::traces
