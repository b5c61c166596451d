// Formats that people bring and no reader is for: what they are called, and what to import in their
// place. A line or a key alone is not enough where others could have it too. Internal to this
// folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mfsdp {

/// "a log of verl, which is not read yet; ...": the text after "FILE: is ". None: not known.
using OtherFormat = std::optional<std::string>;

/// By the first bytes: archives and tables that are no text.
[[nodiscard]] OtherFormat other_binary(std::string_view bytes);

/// By one line of a log, without colours. A launcher may have put something before it.
[[nodiscard]] OtherFormat other_log(std::string_view line);

/// By the keys of a text that begins with an object or a list of JSON.
[[nodiscard]] OtherFormat other_json(std::string_view text);

/// By the first two lines, where those have equally many fields that commas separate, the first
/// one names.
[[nodiscard]] OtherFormat other_table(std::string_view text);

/// Whether the text contains `"key":`, with or without blanks before the colon.
[[nodiscard]] bool has_json_key(std::string_view text, std::string_view key);

}  // namespace mfsdp
