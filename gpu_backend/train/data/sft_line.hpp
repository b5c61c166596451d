// One line of JSONL for supervised fine-tuning: what the model is shown, and what it must answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp {

/// Byte tokens of a line, kBeginToken first, and from which of them the model learns.
struct SftSequence {
  std::vector<std::int32_t> tokens;
  std::vector<bool> learned;  ///< for each token
};

/// {"prompt": "...", "response": "..."} becomes begin, prompt, response, end; response and end are
/// learned. {"messages": [{"role": "user", "content": "..."}, ...]}, as Hugging Face writes chats,
/// becomes begin and, for each message, its role, a newline, its content and end; contents of
/// "assistant" are learned with their ends. Other keys are passed over.
/// Errors name the file and the line: no JSON, no UTF-8, keys or values that are not as above.
[[nodiscard]] Result<SftSequence> parse_sft_line(std::string_view line, const std::string& name,
                                                 std::size_t line_number);

/// Cuts a sequence to seq_len tokens with labels, or fills it up with kPadToken. The label of a
/// token is its successor where that one is learned, else kIgnoreIndex.
void fill_sft_sample(const SftSequence& sequence, std::span<std::int32_t> tokens,
                     std::span<std::int32_t> labels);

}  // namespace mfsdp
