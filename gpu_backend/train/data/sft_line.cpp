#include "gpu_backend/train/data/sft_line.hpp"

#include <fmt/format.h>

#include <utility>

#include "gpu_backend/train/data/byte_tokens.hpp"

namespace mfsdp {
namespace {

void append(SftSequence& sequence, std::int32_t token, bool learned) {
  sequence.tokens.push_back(token);
  sequence.learned.push_back(learned);
}

void append(SftSequence& sequence, std::string_view text, bool learned) {
  for (const char c : text) append(sequence, static_cast<unsigned char>(c), learned);
}

SftSequence bytes_of(const std::vector<ChatMessage>& messages) {
  SftSequence sequence;
  append(sequence, kBeginToken, false);
  for (const ChatMessage& message : messages) {
    append(sequence, message.role + "\n", false);
    append(sequence, message.content, message.learned);
    append(sequence, kEndToken, message.learned);
  }
  return sequence;
}

SftSequence bytes_of(const PromptText& text) {
  SftSequence sequence;
  append(sequence, kBeginToken, false);
  append(sequence, text.prompt, false);
  append(sequence, text.completion, true);
  append(sequence, kEndToken, true);
  return sequence;
}

SftSequence bytes_of(const DocumentText& text) {
  SftSequence sequence{.kind = LineKind::document, .tokens = {}, .learned = {}};
  append(sequence, kBeginToken, false);
  append(sequence, text.text, true);
  append(sequence, kEndToken, true);
  return sequence;
}

SftSequence bytes_of(const TokenText& text) {
  return {.kind = LineKind::tokens, .tokens = text.tokens, .learned = text.learned};
}

/// A sequence that is being made by a tokenizer.
class TokenWriter {
 public:
  explicit TokenWriter(TextEncoder& encoder) : encoder_(encoder) {}

  void tokens(std::span<const std::int32_t> ids, bool learned) {
    for (const std::int32_t id : ids) append(sequence_, id, learned);
  }
  Result<void> text(std::string_view text, bool learned) {
    MFSDP_TRY(encoder_.encode(text, sequence_.tokens));
    sequence_.learned.resize(sequence_.tokens.size(), learned);
    return {};
  }
  [[nodiscard]] SftSequence take(LineKind kind) {
    sequence_.kind = kind;
    return std::move(sequence_);
  }

 private:
  TextEncoder& encoder_;
  SftSequence sequence_;
};

Result<SftSequence> tokens_of_chat(const std::vector<ChatMessage>& messages, const TextForm& form,
                                   TextEncoder& encoder) {
  if (!form.chat)
    return fail("", form.no_chat + ": expected --chat-template chatml or llama3, or no chats");
  TokenWriter out(encoder);
  // Text that is learned alike and has no token between is encoded as one.
  std::string text;
  bool learned = false;
  const auto flush = [&]() -> Result<void> {
    MFSDP_TRY(out.text(text, learned));
    text.clear();
    return {};
  };
  for (const ChatPiece& piece : render_chat(*form.chat, messages)) {
    if (piece.is_token || piece.learned != learned) MFSDP_TRY(flush());
    learned = piece.learned;
    if (!piece.is_token) {
      text += piece.text;
    } else {
      const std::int32_t id = *form.tokenizer->find(piece.text);
      out.tokens({&id, 1}, piece.learned);
    }
  }
  MFSDP_TRY(flush());
  return out.take(LineKind::answers);
}

/// What the tokenizer puts before a text, `prompt`, `learned`, and the end.
Result<SftSequence> tokens_of_text(std::string_view prompt, std::string_view learned, LineKind kind,
                                   const TextForm& form, TextEncoder& encoder) {
  if (!form.end)
    return fail("", fmt::format("{} has no token that ends a text: expected \"eos_token\" in "
                                "tokenizer_config.json beside it",
                                form.tokenizer->name()));
  TokenWriter out(encoder);
  out.tokens(form.tokenizer->begin(), false);
  MFSDP_TRY(out.text(prompt, false));
  MFSDP_TRY(out.text(learned, true));
  out.tokens({&*form.end, 1}, true);
  return out.take(kind);
}

}  // namespace

Result<SftSequence> LineEncoder::encode_by_tokenizer(const LineText& text,
                                                     TextEncoder& encoder) const {
  if (const auto* messages = std::get_if<std::vector<ChatMessage>>(&text))
    return tokens_of_chat(*messages, *form_, encoder);
  if (const auto* prompt = std::get_if<PromptText>(&text))
    return tokens_of_text(prompt->prompt, prompt->completion, LineKind::answers, *form_, encoder);
  if (const auto* document = std::get_if<DocumentText>(&text))
    return tokens_of_text("", document->text, LineKind::document, *form_, encoder);
  return bytes_of(std::get<TokenText>(text));
}

Result<SftSequence> LineEncoder::encode(std::string_view line, const std::string& name,
                                        std::size_t line_number) const {
  MFSDP_LET(text, read_line_text(line, name, line_number));
  if (!form_) return std::visit([](const auto& one) { return bytes_of(one); }, text);
  std::unique_ptr<TextEncoder> encoder;
  {
    const std::scoped_lock lock(mutex_);
    if (!idle_.empty()) {
      encoder = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (!encoder) encoder = std::make_unique<TextEncoder>(form_->tokenizer);
  auto sequence = encode_by_tokenizer(text, *encoder);
  {
    const std::scoped_lock lock(mutex_);
    idle_.push_back(std::move(encoder));
  }
  if (!sequence) return fail(fmt::format("{}:{}", name, line_number), sequence.error().message());
  return sequence;
}

void fill_sft_piece(const SftSequence& sequence, std::size_t first, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> labels) {
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const std::size_t at = first + i;
    tokens[i] = sequence.tokens[at];
    const bool has_loss = at + 1 < sequence.tokens.size() && sequence.learned[at + 1];
    labels[i] = has_loss ? sequence.tokens[at + 1] : kIgnoreIndex;
  }
}

}  // namespace mfsdp
