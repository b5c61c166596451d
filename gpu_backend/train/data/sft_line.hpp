// One line of JSONL as tokens: what the model is shown, and which of them it learns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/train/data/line_text.hpp"
#include "gpu_backend/train/text/text_form.hpp"

namespace mfsdp {

/// What a line is, for a data set's description.
enum class LineKind { answers, document, tokens };

struct SftSequence {
  LineKind kind = LineKind::answers;
  std::vector<std::int32_t> tokens;
  std::vector<bool> learned;  ///< for each token
};

/// Makes tokens of lines. Const calls may come from several threads.
///
/// With a tokenizer a chat is what its template writes, text and completion are followed by the
/// token that ends texts, and what the tokenizer puts before a text stands before both. Parts are
/// encoded apart where what is learned begins or ends, as a prompt is when a model is asked.
/// Without one, bytes: begin, prompt, completion, end; of a chat begin and, for each message, role,
/// newline, content, end; of a document begin, text, end.
class LineEncoder {
 public:
  /// `form`: null for bytes.
  explicit LineEncoder(std::shared_ptr<const TextForm> form = nullptr) : form_(std::move(form)) {}

  /// Errors name the file and the line: those of read_line_text, a chat whose template is none that
  /// is built in, a text without a token to end it.
  [[nodiscard]] Result<SftSequence> encode(std::string_view line, const std::string& name,
                                           std::size_t line_number) const;

 private:
  [[nodiscard]] Result<SftSequence> encode_by_tokenizer(const LineText& text,
                                                        TextEncoder& encoder) const;

  std::shared_ptr<const TextForm> form_;
  // Encoders that no thread uses now: each remembers the words that it has met.
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<TextEncoder>> idle_;
};

/// Writes `count` tokens of a sequence from `first` on, and labels: that of a token is its
/// successor where that one is learned, else kIgnoreIndex.
void fill_sft_piece(const SftSequence& sequence, std::size_t first, std::span<std::int32_t> tokens,
                    std::span<std::int32_t> labels);

}  // namespace mfsdp
