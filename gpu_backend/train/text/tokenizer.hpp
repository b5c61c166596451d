// Text to tokens and back, as Hugging Face's tokenizers do it for byte-level BPE.
//
//   text ─► added tokens ─► normal form C ─► words by patterns ─► merges of bytes ─► ids
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/train/text/added_tokens.hpp"
#include "gpu_backend/train/text/bpe.hpp"
#include "gpu_backend/train/text/split_pattern.hpp"

namespace mfsdp {

/// The contents of a tokenizer.json. Several threads may call const functions.
class Tokenizer {
 public:
  /// All members, for the reader.
  struct Parts {
    std::string where;                    ///< the file, for errors
    AddedTokens before_normal_form = {};  ///< added tokens that are searched first
    AddedTokens after_normal_form = {};   ///< those searched in normalized text
    bool normal_form_c = false;
    std::vector<SplitPattern> patterns;  ///< applied in this order
    Bpe bpe;
    std::vector<std::string> bytes_of;     ///< by id; for an added token its text
    std::vector<bool> is_special = {};     ///< by id
    std::vector<bool> is_there;            ///< by id: ids may have gaps
    TextMap<std::int32_t> by_text;         ///< ids by the tokens' names in the file
    std::vector<std::int32_t> begin = {};  ///< put before a text (Llama 3's begin_of_text)
    std::vector<std::int32_t> end = {};    ///< put after a text
  };

  /// Opens tokenizer.json, or the folder that holds it. Errors: no file, no JSON, or an unsupported
  /// feature, by name.
  [[nodiscard]] static Result<std::shared_ptr<const Tokenizer>> open(
      const std::filesystem::path& path);
  /// Parses the contents of a file; `where` names it in errors.
  [[nodiscard]] static Result<std::shared_ptr<const Tokenizer>> parse(std::string_view text,
                                                                      const std::string& where);

  explicit Tokenizer(Parts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] const std::string& name() const { return parts_.where; }
  /// The highest id plus one: the number of rows that a model needs.
  [[nodiscard]] std::int64_t size() const { return std::ssize(parts_.bytes_of); }
  /// The token with this name in the file, such as "<|im_end|>".
  [[nodiscard]] std::optional<std::int32_t> find(std::string_view token) const;
  /// The tokens that the post-processor adds before and after a text.
  [[nodiscard]] const std::vector<std::int32_t>& begin() const { return parts_.begin; }
  [[nodiscard]] const std::vector<std::int32_t>& end() const { return parts_.end; }

  /// The bytes of tokens. They need not be UTF-8 if a token is a part of a character. Errors: an id
  /// without a token.
  [[nodiscard]] Result<std::string> decode(std::span<const std::int32_t> ids,
                                           bool skip_special = false) const;

 private:
  friend class TextEncoder;
  Parts parts_;
};

/// Encodes with one tokenizer on one thread. It has a cache of words and the scratch of the
/// patterns.
class TextEncoder {
 public:
  explicit TextEncoder(std::shared_ptr<const Tokenizer> tokenizer);

  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }

  /// Appends the tokens of `text`, without those of the post-processor. Added tokens in the text
  /// become their ids. Errors: text that is no UTF-8 (with the byte's offset), a search that
  /// exceeds PCRE2's limits.
  [[nodiscard]] Result<void> encode(std::string_view text, std::vector<std::int32_t>& out);

 private:
  [[nodiscard]] Result<void> encode_piece(std::string_view text, std::vector<std::int32_t>& out);
  [[nodiscard]] Result<void> encode_words(std::string_view text, std::size_t pattern,
                                          std::vector<std::int32_t>& out);
  void encode_word(std::string_view word, std::vector<std::int32_t>& out);

  std::shared_ptr<const Tokenizer> tokenizer_;
  std::vector<SplitPattern::Scratch> scratch_;  ///< by pattern
  TextMap<std::vector<std::int32_t>> words_;
};

}  // namespace mfsdp
