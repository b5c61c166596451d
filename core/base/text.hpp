// Text of users and files, before it reaches a terminal, a message or JSON.
#pragma once

#include <string>
#include <string_view>

namespace mfsdp {

[[nodiscard]] bool is_utf8(std::string_view text);

/// Text on one printable line: control characters become \n, \t or \x1b, bytes that are no UTF-8
/// become '?'.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace mfsdp
