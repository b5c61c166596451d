// A shell script as words. Private to the reader of configurations.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mfsdp::traces {

/// Words between blanks and the signs ( ) ; & |, without quotes, comments and escapes; variables
/// stay as they are written. A quote that does not end runs to the end of the text.
[[nodiscard]] std::vector<std::string> shell_words(std::string_view text);

}  // namespace mfsdp::traces
