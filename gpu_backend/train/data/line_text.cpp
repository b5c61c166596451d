#include "gpu_backend/train/data/line_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "gpu_backend/train/data/dataset.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;
using Messages = std::vector<ChatMessage>;

constexpr std::string_view kAssistant = "assistant";

/// Null where the key is not there.
const Json* value_of(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

bool is_given(const Json* value) {
  return value != nullptr && !value->is_null() && !(value->is_array() && value->empty());
}

/// The text of a list's elements, one after the other: texts, or {"type": "text", "text": "..."}.
Result<std::string> joined_parts(const Json& parts, const char* key, const std::string& where) {
  std::string text;
  for (const Json& part : parts) {
    if (part.is_string()) {
      text += part.get_ref<const std::string&>();
      continue;
    }
    const Json* type = part.is_object() ? value_of(part, "type") : nullptr;
    const Json* content = part.is_object() ? value_of(part, "text") : nullptr;
    const bool is_text = type == nullptr || *type == "text";
    if (!is_text || content == nullptr || !content->is_string())
      return fail(where, fmt::format("expected strings or parts of type \"text\" in the list under "
                                     "\"{}\", got {}",
                                     key, json_excerpt(part)));
    text += content->get_ref<const std::string&>();
  }
  return text;
}

/// Text under `key`: a string or a list of parts; null as no text where that is allowed.
Result<std::string> text_of(const Json& object, const char* key, const std::string& where,
                            bool may_be_null) {
  const Json* found = value_of(object, key);
  if (found == nullptr) return fail(where, fmt::format("expected a key \"{}\"", key));
  if (found->is_null() && may_be_null) return std::string();
  if (found->is_array()) return joined_parts(*found, key, where);
  if (!found->is_string())
    return fail(where,
                fmt::format("expected a string under \"{}\", got {}", key, json_excerpt(*found)));
  return found->get<std::string>();
}

/// Where the key is not there or null: no text.
Result<std::string> optional_text(const Json& object, const char* key, const std::string& where) {
  return value_of(object, key) == nullptr ? Result<std::string>(std::string())
                                          : text_of(object, key, where, true);
}

/// What would be left out without a word, though the model is to learn it.
Result<void> refuse_given(const Json& object, std::initializer_list<const char*> keys,
                          const std::string& where) {
  for (const char* key : keys)
    if (is_given(value_of(object, key)))
      return fail(where, fmt::format("\"{}\" is not supported", key));
  return {};
}

// ---- chats --------------------------------------------------------------------------------------

/// OpenAI's: 0 where a turn of the assistant is not to be learned.
Result<bool> is_weighed(const Json& message, const std::string& where) {
  const Json* weight = value_of(message, "weight");
  if (weight == nullptr || weight->is_null() || *weight == 1) return true;
  if (*weight == 0) return false;
  return fail(where, "expected 0 or 1 under \"weight\", got " + json_excerpt(*weight));
}

/// The role that ShareGPT's name means.
std::optional<std::string_view> role_of(std::string_view from) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kRoles{
      {{"human", "user"},
       {"user", "user"},
       {"gpt", kAssistant},
       {"chatgpt", kAssistant},
       {"bing", kAssistant},
       {"assistant", kAssistant},
       {"system", "system"},
       {"tool", "tool"}}};
  for (const auto& [name, role] : kRoles)
    if (name == from) return role;
  return std::nullopt;
}

Result<ChatMessage> read_message(const Json& json, const std::string& where) {
  if (!json.is_object()) return fail(where, "expected an object, got " + json_excerpt(json));
  MFSDP_TRY(refuse_given(json, {"tool_calls", "function_call"}, where));
  MFSDP_LET(weighed, is_weighed(json, where));
  ChatMessage message;
  if (value_of(json, "role") == nullptr && value_of(json, "from") != nullptr) {
    MFSDP_LET(from, text_of(json, "from", where, false));
    MFSDP_LET(value, text_of(json, "value", where, true));
    const auto role = role_of(from);
    if (!role)
      return fail(where, fmt::format("expected \"human\", \"gpt\", \"system\" or \"tool\" under "
                                     "\"from\", got {}",
                                     json_excerpt(from)));
    message = {.role = std::string(*role), .content = value};
  } else {
    MFSDP_LET(role, text_of(json, "role", where, false));
    MFSDP_LET(content, text_of(json, "content", where, true));
    message = {.role = role, .content = content};
  }
  message.learned = weighed && message.role == kAssistant;
  return message;
}

/// The messages of a list, behind those that are there.
Result<void> read_messages(const Json& list, const char* key, const std::string& where,
                           Messages& messages) {
  if (!list.is_array())
    return fail(where,
                fmt::format("expected a list under \"{}\", got {}", key, json_excerpt(list)));
  for (std::size_t i = 0; i < list.size(); ++i) {
    MFSDP_LET(message, read_message(list[i], fmt::format("{}: {}[{}]", where, key, i)));
    messages.push_back(std::move(message));
  }
  return {};
}

/// A system prompt that stands beside the messages.
Result<Messages> begin_chat(const Json& line, const std::string& where) {
  MFSDP_LET(system, optional_text(line, "system", where));
  if (system.empty()) return Messages();
  return Messages{{.role = "system", .content = system, .learned = false}};
}

Result<LineText> with_answer(Messages messages, const std::string& where) {
  if (std::ranges::none_of(messages, &ChatMessage::learned))
    return fail(where, "expected a message whose role is \"assistant\", and whose weight is not 0");
  return messages;
}

Result<LineText> read_chat(const Json& line, const char* key, const std::string& where) {
  MFSDP_TRY(refuse_given(line, {"tools", "functions"}, where));
  MFSDP_LET(messages, begin_chat(line, where));
  MFSDP_TRY(read_messages(line[key], key, where, messages));
  return with_answer(std::move(messages), where);
}

Result<LineText> read_alpaca(const Json& line, const std::string& where) {
  MFSDP_TRY(refuse_given(line, {"history"}, where));
  MFSDP_LET(messages, begin_chat(line, where));
  MFSDP_LET(instruction, text_of(line, "instruction", where, false));
  MFSDP_LET(input, optional_text(line, "input", where));
  MFSDP_LET(output, text_of(line, "output", where, false));
  messages.push_back({.role = "user",
                      .content = input.empty() ? instruction : instruction + "\n" + input,
                      .learned = false});
  messages.push_back({.role = std::string(kAssistant), .content = output, .learned = true});
  return messages;
}

// ---- prompts and documents ----------------------------------------------------------------------

bool is_chat(const Json* value) {
  return value != nullptr && value->is_array() && !value->empty() && value->front().is_object() &&
         (value->front().contains("role") || value->front().contains("from"));
}

Result<LineText> read_prompt(const Json& line, const std::string& where) {
  const char* answer = value_of(line, "completion") != nullptr ? "completion" : "response";
  const Json* prompt = value_of(line, "prompt");
  const Json* completion = value_of(line, answer);
  if (!is_chat(completion)) {
    if (is_chat(prompt))
      return fail(where, fmt::format("expected a list of messages under \"{}\", as under "
                                     "\"prompt\"",
                                     answer));
    MFSDP_LET(begin, text_of(line, "prompt", where, true));
    MFSDP_LET(end, text_of(line, answer, where, false));
    return PromptText{.prompt = begin, .completion = end};
  }
  Messages messages;
  if (is_given(prompt)) MFSDP_TRY(read_messages(*prompt, "prompt", where, messages));
  for (ChatMessage& message : messages) message.learned = false;
  MFSDP_TRY(read_messages(*completion, answer, where, messages));
  return with_answer(std::move(messages), where);
}

// ---- tokens -------------------------------------------------------------------------------------

Result<std::vector<std::int32_t>> integers_of(const Json& line, const char* key,
                                              const std::string& where) {
  const Json& list = line[key];
  if (!list.is_array() || list.empty())
    return fail(where, fmt::format("expected a list of integers under \"{}\", got {}", key,
                                   json_excerpt(list)));
  std::vector<std::int32_t> values;
  for (const Json& one : list) {
    const std::int64_t value = one.is_number_integer() ? one.get<std::int64_t>() : -1;
    if (value != kIgnoreIndex && (value < 0 || value > std::numeric_limits<std::int32_t>::max()))
      return fail(where, fmt::format("expected integers from 0 on under \"{}\", got {}", key,
                                     json_excerpt(one)));
    values.push_back(static_cast<std::int32_t>(value));
  }
  return values;
}

/// Padding may stand at the end alone: before other tokens it would be seen by them.
Result<std::size_t> tokens_before_padding(const Json& line, std::size_t count,
                                          const std::string& where) {
  const Json* given = value_of(line, "attention_mask");
  if (given == nullptr || given->is_null()) return count;
  MFSDP_LET(mask, integers_of(line, "attention_mask", where));
  const auto padding = std::ranges::find(mask, 0);
  if (mask.size() != count || std::any_of(mask.begin(), padding, [](int m) { return m != 1; }) ||
      std::any_of(padding, mask.end(), [](int m) { return m != 0; }))
    return fail(where, fmt::format("expected {} integers under \"attention_mask\": 1, and 0 for "
                                   "padding at the end",
                                   count));
  return static_cast<std::size_t>(padding - mask.begin());
}

Result<LineText> read_tokens(const Json& line, const std::string& where) {
  MFSDP_LET(ids, integers_of(line, "input_ids", where));
  if (std::ranges::find(ids, kIgnoreIndex) != ids.end())
    return fail(where, fmt::format("expected integers from 0 on under \"input_ids\", got {}",
                                   kIgnoreIndex));
  TokenText text{.tokens = ids, .learned = std::vector<bool>(ids.size(), true)};
  if (const Json* given = value_of(line, "labels"); given != nullptr && !given->is_null()) {
    MFSDP_LET(labels, integers_of(line, "labels", where));
    if (labels.size() != ids.size())
      return fail(
          where, fmt::format("expected {} labels, one a token, got {}", ids.size(), labels.size()));
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (labels[i] != kIgnoreIndex && labels[i] != ids[i])
        return fail(where, fmt::format("expected labels[{}] to be {}, its token, or {}, got {}", i,
                                       ids[i], kIgnoreIndex, labels[i]));
      text.learned[i] = labels[i] != kIgnoreIndex;
    }
  }
  MFSDP_LET(kept, tokens_before_padding(line, ids.size(), where));
  text.tokens.resize(kept);
  text.learned.resize(kept);
  return text;
}

}  // namespace

Result<LineText> read_line_text(std::string_view line, const std::string& name,
                                std::size_t line_number) {
  MFSDP_LET(value, parse_json(line, name, line_number));
  const std::string where = fmt::format("{}:{}", name, line_number);
  if (!value.is_object()) return fail(where, "expected an object, got " + json_excerpt(value));
  if (value.contains("messages")) return read_chat(value, "messages", where);
  if (value.contains("conversations")) return read_chat(value, "conversations", where);
  if (value.contains("prompt")) return read_prompt(value, where);
  if (value.contains("instruction")) return read_alpaca(value, where);
  if (value.contains("input_ids")) return read_tokens(value, where);
  if (value.contains("text")) {
    MFSDP_LET(text, text_of(value, "text", where, false));
    return DocumentText{.text = text};
  }
  return fail(
      where,
      "expected a key \"messages\", \"conversations\", \"prompt\", \"instruction\", \"text\" "
      "or \"input_ids\"");
}

}  // namespace mfsdp
