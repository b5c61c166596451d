#include "core/base/text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace mfsdp {
namespace {

/// Bytes of the UTF-8 sequence at the front of `text`, or 0 if there is no valid one.
std::size_t sequence_length(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() < length) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  // Overlong forms, surrogates and values above U+10FFFF.
  if (lead == 0xE0 && byte(1) < 0xA0) return 0;
  if (lead == 0xED && byte(1) > 0x9F) return 0;
  if (lead == 0xF0 && byte(1) < 0x90) return 0;
  if (lead == 0xF4 && byte(1) > 0x8F) return 0;
  return length;
}

/// Below 0x20, 0x7F, and U+0080..U+009F, which some terminals interpret as well.
bool is_control(std::string_view sequence) {
  const auto lead = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return lead < 0x20 || lead == 0x7F;
  return sequence.size() == 2 && lead == 0xC2 && static_cast<unsigned char>(sequence[1]) < 0xA0;
}

/// The code point of a valid sequence.
char32_t character_of(std::string_view sequence) {
  const auto lead = static_cast<unsigned char>(sequence[0]);
  if (sequence.size() == 1) return lead;
  char32_t value = lead & (0x7FU >> sequence.size());
  for (const char c : sequence.substr(1))
    value = (value << 6U) | (static_cast<unsigned>(c) & 0x3FU);
  return value;
}

/// Direction marks, embeddings, overrides and isolates; blanks and joiners without width;
/// separators of lines and paragraphs; tags.
bool is_unseen(char32_t c) {
  return c == 0x061C || c == 0x180E || (c >= 0x200B && c <= 0x200F) ||
         (c >= 0x2028 && c <= 0x202E) || (c >= 0x2060 && c <= 0x206F) || c == 0xFEFF ||
         (c >= 0xFFF9 && c <= 0xFFFB) || (c >= 0xE0000 && c <= 0xE007F);
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string printable(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = sequence_length(text);
    const std::string_view sequence = text.substr(0, length);
    if (length == 0) {
      out += '?';
    } else if (is_unseen(character_of(sequence))) {
      out += fmt::format("\\u{:04x}", static_cast<std::uint32_t>(character_of(sequence)));
    } else if (!is_control(sequence)) {
      out += sequence;
    } else if (sequence == "\n") {
      out += "\\n";
    } else if (sequence == "\t") {
      out += "\\t";
    } else {
      out += fmt::format("\\x{:02x}", static_cast<unsigned char>(sequence.back()));
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  return out;
}

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = lower_case(c);
  return out;
}

bool holds_in_any_case(std::string_view text, std::string_view part) {
  const auto lower = [](char c) { return lower_case(c); };
  return !std::ranges::search(text, part, {}, lower, lower).empty();
}

std::string joined_words(std::string_view name, std::string_view separators) {
  std::string joined;
  for (const char c : name)
    if (separators.find(c) == std::string_view::npos) joined += lower_case(c);
  return joined;
}

}  // namespace mfsdp
