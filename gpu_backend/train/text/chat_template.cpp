#include "gpu_backend/train/text/chat_template.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "gpu_backend/train/text/utf8.hpp"

namespace mfsdp {
namespace {

/// Whether Python's str.strip() removes the character, as "trim" does in templates.
bool is_python_space(std::uint32_t code) {
  return (code >= 0x09 && code <= 0x0D) || (code >= 0x1C && code <= 0x20) || code == 0x85 ||
         code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 ||
         code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

/// Trims UTF-8 text on both sides.
std::string_view trimmed(std::string_view text) {
  std::size_t begin = text.size();
  std::size_t end = 0;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Character next = next_character(text.substr(at));
    if (!is_python_space(next.code)) {
      begin = std::min(begin, at);
      end = at + next.size;
    }
    at += next.size;
  }
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

class ChatWriter {
 public:
  void token(std::string_view name, bool learned = false) {
    pieces_.push_back({.text = std::string(name), .is_token = true, .learned = learned});
  }
  void text(std::string_view text, bool learned = false) {
    if (!text.empty())
      pieces_.push_back({.text = std::string(text), .is_token = false, .learned = learned});
  }
  [[nodiscard]] std::vector<ChatPiece> take() { return std::move(pieces_); }

 private:
  std::vector<ChatPiece> pieces_;
};

void write_chatml(const ChatMessage& message, ChatWriter& out) {
  out.token("<|im_start|>");
  out.text(message.role + "\n");
  out.text(message.content, message.learned);
  out.token("<|im_end|>", message.learned);
  out.text("\n");
}

void write_llama3(const ChatMessage& message, ChatWriter& out) {
  out.token("<|start_header_id|>");
  out.text(message.role);
  out.token("<|end_header_id|>");
  out.text("\n\n");
  out.text(trimmed(message.content), message.learned);
  out.token("<|eot_id|>", message.learned);
}

/// A text that is typical of a template, and the template's name.
struct Mark {
  std::string_view text;
  std::string_view name;
};

constexpr std::array<Mark, 9> kMarks{{{"<|im_start|>", "chatml"},
                                      {"<|start_header_id|>", "llama3"},
                                      {"[INST]", "Mistral's or Llama 2's, with [INST]"},
                                      {"<start_of_turn>", "Gemma's, with <start_of_turn>"},
                                      {"<|assistant|>", "Phi-3's or Zephyr's, with <|assistant|>"},
                                      {"<|header_start|>", "Llama 4's, with <|header_start|>"},
                                      {"<|channel|>", "gpt-oss's, with <|channel|>"},
                                      {"<\xEF\xBD\x9C"
                                       "Assistant\xEF\xBD\x9C>",
                                       "DeepSeek's"},
                                      {"### Response", "Alpaca's, with ### Response"}}};

}  // namespace

std::vector<ChatPiece> render_chat(ChatTemplate form, const std::vector<ChatMessage>& messages) {
  ChatWriter out;
  if (form == ChatTemplate::llama3) out.token("<|begin_of_text|>");
  for (const ChatMessage& message : messages) {
    if (form == ChatTemplate::chatml) {
      write_chatml(message, out);
    } else {
      write_llama3(message, out);
    }
  }
  return out.take();
}

std::vector<std::string_view> tokens_of(ChatTemplate form) {
  if (form == ChatTemplate::chatml) return {"<|im_start|>", "<|im_end|>"};
  return {"<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"};
}

std::string_view name_of_chat_template(std::string_view jinja) {
  for (const Mark& mark : kMarks)
    if (jinja.find(mark.text) != std::string_view::npos) return mark.name;
  return "unknown";
}

}  // namespace mfsdp
