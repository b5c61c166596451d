// Text of users and files, made safe for a terminal, a message or JSON.
#pragma once

#include <string>
#include <string_view>

namespace mfsdp {

[[nodiscard]] bool is_utf8(std::string_view text);

/// Text on one printable line: control characters become escapes such as \n, \t or \x1b; invisible
/// characters (direction marks, zero-width blanks, line separators, tags) become escapes such as
/// \u202e; bytes that are not UTF-8 become '?'.
[[nodiscard]] std::string printable(std::string_view text);

/// ASCII capitals become small letters; other bytes stay, in every locale.
[[nodiscard]] constexpr char lower_case(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
[[nodiscard]] std::string lower_case(std::string_view text);

/// Whether `text` contains `part`; case does not matter.
[[nodiscard]] bool holds_in_any_case(std::string_view text, std::string_view part);

/// Lower case without the characters that separate words, for names with several spellings:
/// "ZeRO-3" and "zero_3" become "zero3".
[[nodiscard]] std::string joined_words(std::string_view name, std::string_view separators);

}  // namespace mfsdp
