// The text format of a model: its tokenizer, the end of its texts, and its chat template.
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
  std::int32_t padding = 0;          ///< it never has a loss, so any token works
  std::optional<ChatTemplate> chat;  ///< none: chats are refused with the error `no_chat`
  std::string no_chat;
};

/// `path`: tokenizer.json or its folder. Also reads "eos_token", "pad_token" and the chat template
/// from tokenizer_config.json and chat_template.jinja in the same folder, if they exist. Without an
/// eos_token texts end with <|endoftext|> or <|end_of_text|>, if the tokenizer has one. `chat`
/// overrides the template of the files. Without any template, a built-in one is chosen whose tokens
/// exist. Errors: those of Tokenizer::open; the tokenizer lacks tokens of the template or a token
/// of tokenizer_config.json.
[[nodiscard]] Result<TextForm> open_text_form(const std::filesystem::path& path,
                                              std::optional<ChatTemplate> chat);

}  // namespace mfsdp
