// How a chat becomes one text: the templates that are built in.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// `chatml`: <|im_start|>ROLE\nCONTENT<|im_end|>\n (Qwen). `llama3`: <|begin_of_text|>, then
/// <|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|>, white space around contents left
/// out (Llama 3).
enum class ChatTemplate { chatml, llama3 };

template <>
struct Names<ChatTemplate> {
  static constexpr std::array<std::string_view, 2> values{"chatml", "llama3"};
};

struct ChatMessage {
  std::string role;
  std::string content;
  bool learned = false;  ///< content and the token that ends the turn
};

/// A part of a rendered chat: a token by its name, or text.
struct ChatPiece {
  std::string text;
  bool is_token = false;
  bool learned = false;
};

/// The whole chat. No system prompt is made up, and no turn is begun at the end.
[[nodiscard]] std::vector<ChatPiece> render_chat(ChatTemplate form,
                                                 const std::vector<ChatMessage>& messages);

/// Tokens that a template writes; a tokenizer without them cannot be used with it.
[[nodiscard]] std::vector<std::string_view> tokens_of(ChatTemplate form);

/// What a chat_template of tokenizer_config.json is, by the marks that it writes: the name of a
/// built-in template, or of another one; "unknown" where the marks are none that are known.
[[nodiscard]] std::string_view name_of_chat_template(std::string_view jinja);

}  // namespace mfsdp
