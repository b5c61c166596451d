// Tokens that text contains literally, such as <|im_end|>.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mfsdp {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;      ///< not empty
  bool is_special = false;  ///< omitted when text is decoded without special tokens
  bool normalized = false;  ///< searched after the normalizer, not before
};

/// A piece of text: a token, or the text between tokens.
struct TextPiece {
  std::string_view text;
  const AddedToken* token = nullptr;  ///< null: text between tokens
};

/// Finds added tokens in text: from the left, the longest if several begin at one place.
class AddedTokens {
 public:
  AddedTokens() = default;
  explicit AddedTokens(std::vector<AddedToken> tokens);

  [[nodiscard]] const std::vector<AddedToken>& tokens() const { return tokens_; }
  /// The pieces in order, without empty ones. They point into `text` and into this object.
  [[nodiscard]] std::vector<TextPiece> split(std::string_view text) const;

 private:
  [[nodiscard]] const AddedToken* at(std::string_view text) const;

  std::vector<AddedToken> tokens_;                          ///< longest first
  std::array<std::vector<std::uint32_t>, 256> by_first_{};  ///< indices by first byte
};

}  // namespace mfsdp
