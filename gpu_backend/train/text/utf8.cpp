#include "gpu_backend/train/text/utf8.hpp"

#include <algorithm>

namespace mfsdp {
namespace {

/// Length of the character with this lead byte; 0 if it is no lead byte.
std::size_t length_of(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead <= 0xDF) return 2;
  if (lead >= 0xE0 && lead <= 0xEF) return 3;
  if (lead >= 0xF0 && lead <= 0xF4) return 4;
  return 0;
}

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

}  // namespace

Utf8Character next_character(std::string_view text) {
  const std::size_t size = std::clamp<std::size_t>(length_of(byte_at(text, 0)), 1, text.size());
  std::uint32_t code = byte_at(text, 0);
  if (size > 1) code &= 0x7FU >> size;
  for (std::size_t i = 1; i < size; ++i) code = code << 6U | (byte_at(text, i) & 0x3FU);
  return {.code = code, .size = size};
}

void append_utf8(std::string& text, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { text.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0U | code >> 6U);
  } else if (code < 0x10000) {
    put(0xE0U | code >> 12U);
    put(0x80U | (code >> 6U & 0x3FU));
  } else {
    put(0xF0U | code >> 18U);
    put(0x80U | (code >> 12U & 0x3FU));
    put(0x80U | (code >> 6U & 0x3FU));
  }
  put(0x80U | (code & 0x3FU));
}

std::optional<std::size_t> first_not_utf8(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const unsigned char lead = byte_at(text, at);
    const std::size_t size = length_of(lead);
    if (size == 0 || size > text.size() - at) return at;
    for (std::size_t i = 1; i < size; ++i)
      if ((byte_at(text, at + i) & 0xC0U) != 0x80U) return at;
    // The second byte excludes overlong forms, surrogates and characters above U+10FFFF.
    const unsigned char second = size > 1 ? byte_at(text, at + 1) : 0x80;
    const bool is_wrong = (lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F) ||
                          (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F);
    if (is_wrong) return at;
    at += size;
  }
  return std::nullopt;
}

}  // namespace mfsdp
