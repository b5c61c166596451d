#include "gpu_backend/train/text/byte_alphabet.hpp"

#include <array>
#include <cstdint>

#include "gpu_backend/train/text/utf8.hpp"

namespace mfsdp {
namespace {

constexpr std::uint32_t kFirstSubstitute = 0x100;

constexpr bool stands_for_itself(std::uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<std::uint32_t, 256> character_of{};
  std::array<unsigned char, kFirstSubstitute + 68> byte_of{};
  std::array<bool, kFirstSubstitute + 68> is_used{};
};

constexpr Alphabet make_alphabet() {
  Alphabet made;
  std::uint32_t next = kFirstSubstitute;
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    const std::uint32_t character = stands_for_itself(byte) ? byte : next++;
    made.character_of[byte] = character;
    made.byte_of[character] = static_cast<unsigned char>(byte);
    made.is_used[character] = true;
  }
  return made;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

std::string byte_character(unsigned char byte) {
  std::string text;
  append_utf8(text, kAlphabet.character_of[byte]);
  return text;
}

std::optional<std::string> bytes_of_token(std::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    const Utf8Character next = next_character(token);
    if (next.code >= kAlphabet.byte_of.size() || !kAlphabet.is_used[next.code]) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte_of[next.code]));
    token.remove_prefix(next.size);
  }
  return bytes;
}

}  // namespace mfsdp
