// Receivers of notes and warnings about a request.
#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <string_view>

namespace mfsdp {

/// Each may be null; such messages are dropped.
struct Notes {
  std::function<void(const std::string&)> note;
  std::function<void(const std::string&)> warn;
};

/// Writes lines of a tool to its stderr. `err` and the characters of `tool` must outlive the
/// result.
[[nodiscard]] Notes notes_on(std::ostream& err, std::string_view tool);

}  // namespace mfsdp
