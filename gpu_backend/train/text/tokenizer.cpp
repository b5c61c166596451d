#include "gpu_backend/train/text/tokenizer.hpp"

#include <fmt/format.h>

#include <utility>

#include "gpu_backend/train/text/normal_form.hpp"
#include "gpu_backend/train/text/utf8.hpp"

namespace mfsdp {
namespace {

/// Size of the word cache: enough for most of a language, some megabytes.
constexpr std::size_t kMostWords = std::size_t{1} << 16;
constexpr std::size_t kLongestWord = 64;  ///< bytes; longer words rarely occur twice

}  // namespace

std::optional<std::int32_t> Tokenizer::find(std::string_view token) const {
  const auto found = parts_.by_text.find(token);
  return found == parts_.by_text.end() ? std::nullopt : std::optional(found->second);
}

Result<std::string> Tokenizer::decode(std::span<const std::int32_t> ids, bool skip_special) const {
  std::string text;
  for (const std::int32_t id : ids) {
    const auto place = static_cast<std::size_t>(id);
    if (id < 0 || id >= size() || !parts_.is_there[place])
      return fail(parts_.where, fmt::format("expected ids of tokens, {} is none's", id));
    if (!skip_special || !parts_.is_special[place]) text += parts_.bytes_of[place];
  }
  return text;
}

TextEncoder::TextEncoder(std::shared_ptr<const Tokenizer> tokenizer)
    : tokenizer_(std::move(tokenizer)) {
  for (const SplitPattern& pattern : tokenizer_->parts_.patterns) scratch_.emplace_back(pattern);
}

Result<void> TextEncoder::encode(std::string_view text, std::vector<std::int32_t>& out) {
  if (const auto place = first_not_utf8(text))
    return fail("text", fmt::format("expected UTF-8, byte {} (0x{:02x}) is none", *place,
                                    static_cast<unsigned char>(text[*place])));
  for (const TextPiece& piece : tokenizer_->parts_.before_normal_form.split(text)) {
    if (piece.token != nullptr) {
      out.push_back(piece.token->id);
    } else {
      MFSDP_TRY(encode_piece(piece.text, out));
    }
  }
  return {};
}

/// Encodes text without added tokens that are searched before the normal form.
Result<void> TextEncoder::encode_piece(std::string_view text, std::vector<std::int32_t>& out) {
  const Tokenizer::Parts& parts = tokenizer_->parts_;
  std::string normalized;
  if (parts.normal_form_c) {
    MFSDP_SET(normalized, normal_form_c(text));
    text = normalized;
  }
  for (const TextPiece& piece : parts.after_normal_form.split(text)) {
    if (piece.token != nullptr) {
      out.push_back(piece.token->id);
    } else {
      MFSDP_TRY(encode_words(piece.text, 0, out));
    }
  }
  return {};
}

/// Each pattern splits the words of the pattern before it.
Result<void> TextEncoder::encode_words(std::string_view text, std::size_t pattern,
                                       std::vector<std::int32_t>& out) {
  const Tokenizer::Parts& parts = tokenizer_->parts_;
  if (pattern == parts.patterns.size()) {
    encode_word(text, out);
    return {};
  }
  for (std::size_t begin = 0; begin < text.size();) {
    MFSDP_LET(end, parts.patterns[pattern].word_end(text, begin, scratch_[pattern]));
    MFSDP_TRY(encode_words(text.substr(begin, end - begin), pattern + 1, out));
    begin = end;
  }
  return {};
}

void TextEncoder::encode_word(std::string_view word, std::vector<std::int32_t>& out) {
  if (word.size() > kLongestWord) return tokenizer_->parts_.bpe.encode_word(word, out);
  auto known = words_.find(word);
  if (known == words_.end()) {
    if (words_.size() >= kMostWords) words_.clear();
    known = words_.emplace(word, std::vector<std::int32_t>()).first;
    tokenizer_->parts_.bpe.encode_word(word, known->second);
  }
  out.insert(out.end(), known->second.begin(), known->second.end());
}

}  // namespace mfsdp
