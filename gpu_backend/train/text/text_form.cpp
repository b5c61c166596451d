#include "gpu_backend/train/text/text_form.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "core/base/read_file.hpp"

namespace mfsdp {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

constexpr std::size_t kMostConfigBytes = std::size_t{64} << 20;

bool is_file(const fs::path& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored);
}

/// The files beside tokenizer.json.
struct TokenizerConfig {
  std::string where;
  Json json = Json::object();
  std::optional<std::string> chat_template;
};

/// A string, or the element "default" of a list of named templates.
std::optional<std::string> template_of(const Json& json) {
  const auto found = json.find("chat_template");
  if (found == json.end()) return std::nullopt;
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return std::nullopt;
  for (const Json& one : *found)
    if (one.is_object() && one.value("name", Json()) == "default" && one.contains("template") &&
        one["template"].is_string())
      return one["template"].get<std::string>();
  return std::nullopt;
}

Result<TokenizerConfig> read_config(const fs::path& folder) {
  TokenizerConfig config;
  const fs::path path = folder / "tokenizer_config.json";
  config.where = path.string();
  if (is_file(path)) {
    MFSDP_LET(text, read_file(path, "a tokenizer_config.json", kMostConfigBytes));
    MFSDP_LET(json, parse_json(text, config.where));
    if (!json.is_object())
      return fail(config.where, "expected an object, got " + json_excerpt(json));
    config.chat_template = template_of(json);
    config.json = std::move(json);
  }
  if (const fs::path jinja = folder / "chat_template.jinja"; is_file(jinja))
    MFSDP_SET(config.chat_template, read_file(jinja, "a chat template", kMostConfigBytes));
  return config;
}

/// "eos_token": "TEXT" or {"content": "TEXT"}; none if it is missing or null.
Result<std::optional<std::int32_t>> token_in(const TokenizerConfig& config, const char* key,
                                             const Tokenizer& tokenizer) {
  const auto found = config.json.find(key);
  if (found == config.json.end() || found->is_null()) return std::nullopt;
  const Json& name = found->is_object() ? found->value("content", Json()) : *found;
  const auto id = name.is_string() ? tokenizer.find(name.get<std::string>()) : std::nullopt;
  if (!id)
    return fail(config.where, fmt::format("expected a token of {} under \"{}\", got {}",
                                          tokenizer.name(), key, json_excerpt(name)));
  return id;
}

/// The first of its tokens that the tokenizer lacks.
std::optional<std::string_view> missing_token(ChatTemplate form, const Tokenizer& tokenizer) {
  for (const std::string_view token : tokens_of(form))
    if (!tokenizer.find(token)) return token;
  return std::nullopt;
}

Result<void> find_chat_template(const TokenizerConfig& config, TextForm& form) {
  const Tokenizer& tokenizer = *form.tokenizer;
  if (!form.chat && config.chat_template) {
    const std::string_view name = name_of_chat_template(*config.chat_template);
    form.chat = parse<ChatTemplate>(name);
    form.no_chat =
        fmt::format("the chat template of {} is {}, which is not built in", config.where, name);
    if (form.chat && missing_token(*form.chat, tokenizer)) form.chat.reset();
    return {};
  }
  if (form.chat) {
    if (const auto token = missing_token(*form.chat, tokenizer))
      return fail(tokenizer.name(),
                  fmt::format("has no token {}, which the chat template {} writes", *token,
                              to_string(*form.chat)));
    return {};
  }
  form.no_chat = fmt::format("{} has no chat template, and the tokens of none", tokenizer.name());
  for (const ChatTemplate one : {ChatTemplate::chatml, ChatTemplate::llama3})
    if (!missing_token(one, tokenizer)) {
      form.chat = one;
      return {};
    }
  return {};
}

}  // namespace

Result<TextForm> open_text_form(const fs::path& path, std::optional<ChatTemplate> chat) {
  TextForm form;
  MFSDP_SET(form.tokenizer, Tokenizer::open(path));
  form.chat = chat;
  std::error_code ignored;
  const fs::path folder = fs::is_directory(path, ignored) ? path : path.parent_path();
  MFSDP_LET(config, read_config(folder));
  MFSDP_SET(form.end, token_in(config, "eos_token", *form.tokenizer));
  for (const std::string_view known : {"<|endoftext|>", "<|end_of_text|>"})
    if (!form.end) form.end = form.tokenizer->find(known);
  MFSDP_LET(padding, token_in(config, "pad_token", *form.tokenizer));
  form.padding = padding.value_or(form.end.value_or(0));
  MFSDP_TRY(find_chat_template(config, form));
  return form;
}

}  // namespace mfsdp
