// What text is for a model: its tokenizer, how its texts end, and how its chats are written.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/base/error.hpp"
#include "gpu_backend/train/text/chat_template.hpp"
#include "gpu_backend/train/text/tokenizer.hpp"

namespace mfsdp {

struct TextForm {
  std::shared_ptr<const Tokenizer> tokenizer;
  std::optional<std::int32_t> end;   ///< token after a text or a completion; none: unknown
  std::int32_t padding = 0;          ///< never with loss, so that any token does
  std::optional<ChatTemplate> chat;  ///< none: chats are refused, and `no_chat` says why
  std::string no_chat;
};

/// tokenizer.json, or its folder; and of tokenizer_config.json and chat_template.jinja beside it,
/// where they are, "eos_token", "pad_token" and what kind of chat template it is. Without an
/// eos_token texts end with <|endoftext|> or <|end_of_text|>, whichever the tokenizer has.
/// `chat`: instead of what the files say. Without any template the tokens of a built-in one decide.
/// Errors: those of Tokenizer::open; a template whose tokens the tokenizer lacks; a token of
/// tokenizer_config.json that it has not.
[[nodiscard]] Result<TextForm> open_text_form(const std::filesystem::path& path,
                                              std::optional<ChatTemplate> chat);

}  // namespace mfsdp
