// What one line of JSONL says, whichever of the known forms it has: before it becomes tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/train/text/chat_template.hpp"

namespace mfsdp {

/// What is learned is the completion.
struct PromptText {
  std::string prompt;
  std::string completion;
};

/// All of it is learned.
struct DocumentText {
  std::string text;
};

/// Tokens that somebody else has made.
struct TokenText {
  std::vector<std::int32_t> tokens;
  std::vector<bool> learned;  ///< for each token
};

/// The messages of a chat, or one of the others.
using LineText = std::variant<std::vector<ChatMessage>, PromptText, DocumentText, TokenText>;

/// By the first of these keys that is there (README.md has all of them with examples):
///   messages       OpenAI: role, content (text, null, a list of parts), weight 0 or 1
///   conversations  ShareGPT: from, value; "system" beside it
///   prompt         completion or response: text, a list of texts or of messages; prompt also null
///   instruction    Alpaca: input, output; "system" beside it
///   text           a document
///   input_ids      labels (-100: not learned), attention_mask
/// Other keys are passed over, but for those that would change what is learned.
/// Errors name the file and the line, and what was expected.
[[nodiscard]] Result<LineText> read_line_text(std::string_view line, const std::string& name,
                                              std::size_t line_number);

}  // namespace mfsdp
