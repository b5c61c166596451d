#include "gpu_backend/train/data/sft_line.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "gpu_backend/train/data/byte_tokens.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

void append(SftSequence& sequence, std::int32_t token, bool learned) {
  sequence.tokens.push_back(token);
  sequence.learned.push_back(learned);
}

void append(SftSequence& sequence, std::string_view text, bool learned) {
  for (const char c : text) append(sequence, static_cast<unsigned char>(c), learned);
}

/// The text under `key` of an object.
Result<std::string> text_of(const Json& object, const char* key, const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) return fail(where, fmt::format("expected a key \"{}\"", key));
  if (!found->is_string())
    return fail(where,
                fmt::format("expected a string under \"{}\", got {}", key, json_excerpt(*found)));
  return found->get<std::string>();
}

Result<SftSequence> from_messages(const Json& messages, const std::string& where) {
  if (!messages.is_array())
    return fail(where, "expected a list under \"messages\", got " + json_excerpt(messages));
  SftSequence sequence;
  append(sequence, kBeginToken, false);
  bool answers = false;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const std::string place = fmt::format("{}: messages[{}]", where, i);
    if (!messages[i].is_object())
      return fail(place, "expected an object, got " + json_excerpt(messages[i]));
    MFSDP_LET(role, text_of(messages[i], "role", place));
    MFSDP_LET(content, text_of(messages[i], "content", place));
    const bool learned = role == "assistant";
    answers = answers || learned;
    append(sequence, role + "\n", false);
    append(sequence, content, learned);
    append(sequence, kEndToken, learned);
  }
  if (!answers) return fail(where, "expected a message whose role is \"assistant\"");
  return sequence;
}

}  // namespace

Result<SftSequence> parse_sft_line(std::string_view line, const std::string& name,
                                   std::size_t line_number) {
  MFSDP_LET(value, parse_json(line, name, line_number));
  const std::string where = fmt::format("{}:{}", name, line_number);
  if (!value.is_object()) return fail(where, "expected an object, got " + json_excerpt(value));
  if (const auto messages = value.find("messages"); messages != value.end())
    return from_messages(*messages, where);
  if (!value.contains("prompt"))
    return fail(where, "expected keys \"prompt\" and \"response\", or \"messages\"");
  MFSDP_LET(prompt, text_of(value, "prompt", where));
  MFSDP_LET(response, text_of(value, "response", where));
  SftSequence sequence;
  append(sequence, kBeginToken, false);
  append(sequence, prompt, false);
  append(sequence, response, true);
  append(sequence, kEndToken, true);
  return sequence;
}

void fill_sft_sample(const SftSequence& sequence, std::span<std::int32_t> tokens,
                     std::span<std::int32_t> labels) {
  const std::size_t length = sequence.tokens.size();
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = i < length ? sequence.tokens[i] : kPadToken;
    const bool has_loss = i + 1 < length && sequence.learned[i + 1];
    labels[i] = has_loss ? sequence.tokens[i + 1] : kIgnoreIndex;
  }
}

}  // namespace mfsdp
