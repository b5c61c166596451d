// Characters of UTF-8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace mfsdp {

struct Utf8Character {
  std::uint32_t code = 0;
  std::size_t size = 1;  ///< bytes
};

/// The first character of text that is UTF-8 and not empty.
[[nodiscard]] Utf8Character next_character(std::string_view text);

void append_utf8(std::string& text, std::uint32_t code);

/// Offset of the first byte that belongs to no character of UTF-8; none if the text is UTF-8.
/// Surrogates, overlong forms and characters above U+10FFFF are invalid.
[[nodiscard]] std::optional<std::size_t> first_not_utf8(std::string_view text);

}  // namespace mfsdp
