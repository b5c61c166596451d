// Splits a shell script into words. Private to the reader of configurations.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mfsdp::traces {

/// Words are separated by blanks and the characters ( ) ; & |. Quotes, comments and escapes are
/// removed; variables are not expanded. An unterminated quote extends to the end of the text.
[[nodiscard]] std::vector<std::string> shell_words(std::string_view text);

}  // namespace mfsdp::traces
