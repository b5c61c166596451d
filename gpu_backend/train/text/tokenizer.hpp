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

/// What a tokenizer.json says. Const calls may come from several threads.
class Tokenizer {
 public:
  /// Everything of it, for the reader.
  struct Parts {
    std::string where;                    ///< the file, for errors
    AddedTokens before_normal_form = {};  ///< added tokens that are looked for first
    AddedTokens after_normal_form = {};   ///< and those looked for in normalized text
    bool normal_form_c = false;
    std::vector<SplitPattern> patterns;  ///< applied one after the other
    Bpe bpe;
    std::vector<std::string> bytes_of;  ///< by id; of an added token its text
    std::vector<bool> is_special;       ///< by id
    std::vector<bool> is_there;         ///< by id: ids may have gaps
    TextMap<std::int32_t> by_text;      ///< ids by what the file calls tokens
    std::vector<std::int32_t> begin;    ///< put before a text (Llama 3's begin_of_text)
    std::vector<std::int32_t> end;      ///< put after a text
  };

  /// tokenizer.json, or the folder that holds it. Errors: no file, no JSON, and by name what of it
  /// is not supported.
  [[nodiscard]] static Result<std::shared_ptr<const Tokenizer>> open(
      const std::filesystem::path& path);
  /// The same of text; `where` names it.
  [[nodiscard]] static Result<std::shared_ptr<const Tokenizer>> parse(std::string_view text,
                                                                      const std::string& where);

  explicit Tokenizer(Parts parts) : parts_(std::move(parts)) {}

  [[nodiscard]] const std::string& name() const { return parts_.where; }
  /// The highest id plus one: rows that a model needs.
  [[nodiscard]] std::int64_t size() const { return std::ssize(parts_.bytes_of); }
  /// The token that the file calls so, such as "<|im_end|>".
  [[nodiscard]] std::optional<std::int32_t> find(std::string_view token) const;
  /// What the post-processor puts before and after a text.
  [[nodiscard]] const std::vector<std::int32_t>& begin() const { return parts_.begin; }
  [[nodiscard]] const std::vector<std::int32_t>& end() const { return parts_.end; }

  /// The bytes of tokens; of a part of a character they need not be UTF-8.
  /// Errors: an id that is no token's.
  [[nodiscard]] Result<std::string> decode(std::span<const std::int32_t> ids,
                                           bool skip_special = false) const;

 private:
  friend class TextEncoder;
  Parts parts_;
};

/// Encodes with one tokenizer, on one thread: it remembers words and has the patterns' scratch.
class TextEncoder {
 public:
  explicit TextEncoder(std::shared_ptr<const Tokenizer> tokenizer);

  [[nodiscard]] const Tokenizer& tokenizer() const { return *tokenizer_; }

  /// Appends the tokens of `text`, without what the post-processor adds. Added tokens that stand in
  /// the text become their ids. Errors: text that is no UTF-8 (with the byte's place), a pattern
  /// that PCRE2 gives up on.
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
