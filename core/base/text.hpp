// Text of users and files, before it reaches a terminal, a message or JSON.
#pragma once

#include <string>
#include <string_view>

namespace mfsdp {

[[nodiscard]] bool is_utf8(std::string_view text);

/// Text on one printable line: control characters become \n, \t or \x1b; characters that nobody
/// sees (marks of direction, blanks without width, line separators, tags) become \u202e and the
/// like; bytes that are no UTF-8 become '?'.
[[nodiscard]] std::string printable(std::string_view text);

/// ASCII capitals become small letters; other bytes stay, in every locale.
[[nodiscard]] constexpr char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
[[nodiscard]] std::string lower_case(std::string_view text);

/// Whether `part` stands in `text`, capitals or not.
[[nodiscard]] bool holds_in_any_case(std::string_view text, std::string_view part);

/// Small letters without the characters that separate words, of names that people write in several
/// ways: "ZeRO-3" and "zero_3" become "zero3".
[[nodiscard]] std::string joined_words(std::string_view name, std::string_view separators);

}  // namespace mfsdp
