// The built-in chat templates: they convert a chat to one text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

/// `chatml`: <|im_start|>ROLE\nCONTENT<|im_end|>\n (Qwen). `llama3`: <|begin_of_text|>, then
/// <|start_header_id|>ROLE<|end_header_id|>\n\nCONTENT<|eot_id|>, with contents trimmed (Llama 3).
enum class ChatTemplate { chatml, llama3 };

constexpr auto value_names(ChatTemplate) { return name_array("chatml", "llama3"); }

struct ChatMessage {
  std::string role;
  std::string content;
  bool learned = false;  ///< content and the token that ends the turn
};

/// A part of a rendered chat: a token by name, or text.
struct ChatPiece {
  std::string text;
  bool is_token = false;
  bool learned = false;
};

/// Renders the whole chat, without a default system prompt and without the beginning of a further
/// turn.
[[nodiscard]] std::vector<ChatPiece> render_chat(ChatTemplate form,
                                                 const std::vector<ChatMessage>& messages);

/// The tokens that a template writes; it requires a tokenizer that has them.
[[nodiscard]] std::vector<std::string_view> tokens_of(ChatTemplate form);

/// The name of a chat_template of tokenizer_config.json, recognized by typical texts in it: a
/// built-in template or another one; "unknown" if it has no known text.
[[nodiscard]] std::string_view name_of_chat_template(std::string_view jinja);

}  // namespace mfsdp
