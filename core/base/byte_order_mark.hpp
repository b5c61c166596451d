// The mark that some editors put in front of UTF-8.
#pragma once

#include <string_view>

namespace mfsdp {

/// The text without UTF-8's byte order mark.
[[nodiscard]] constexpr std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view mark = "\xEF\xBB\xBF";
  return text.starts_with(mark) ? text.substr(mark.size()) : text;
}

}  // namespace mfsdp
