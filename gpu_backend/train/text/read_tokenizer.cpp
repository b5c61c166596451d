// Reads tokenizer.json. Unsupported features are errors that name them: ids that differ from those
// of the model's training would silently spoil a run.
#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "core/base/read_file.hpp"
#include "core/formats/json_fields.hpp"
#include "gpu_backend/train/text/normal_form.hpp"
#include "gpu_backend/train/text/pattern_text.hpp"
#include "gpu_backend/train/text/tokenizer.hpp"
#include "gpu_backend/train/text/tokenizer_json.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;
using Parts = Tokenizer::Parts;

/// ByteLevel's pattern if "use_regex" is true or missing.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// An optional object: null if it is missing or null.
const Json* part_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

/// The members of a "Sequence", or the object itself.
Result<std::vector<const Json*>> flatten(const Json* part, const char* list_key,
                                         const std::string& where) {
  std::vector<const Json*> parts;
  if (part == nullptr) return parts;
  MFSDP_LET(type, text_field(*part, "type", where));
  if (type != "Sequence") return std::vector{part};
  MFSDP_TRY(refuse_other_keys(*part, {"type", list_key}, where));
  MFSDP_LET(list, list_field(*part, list_key, where));
  for (const Json& one : *list) parts.push_back(&one);
  return parts;
}

// ---- before and after the model ----------------------------------------------------------------

Result<bool> read_normalizer(const Json& json, const std::string& where) {
  const std::string place = where + ": normalizer";
  MFSDP_LET(parts, flatten(part_of(json, "normalizer"), "normalizers", place));
  for (const Json* part : parts) {
    MFSDP_LET(type, text_field(*part, "type", place));
    if (type != "NFC") return unsupported_type(place, type, "NFC or none");
    MFSDP_TRY(refuse_other_keys(*part, {"type"}, place));
  }
  return !parts.empty();
}

Result<SplitPattern> read_pattern(std::string_view pattern, const std::string& place) {
  MFSDP_LET(translated, pcre2_pattern(pattern, place));
  return SplitPattern::compile(translated, place);
}

Result<SplitPattern> read_split(const Json& part, const std::string& place) {
  MFSDP_TRY(refuse_other_keys(part, {"type", "pattern", "behavior", "invert"}, place));
  MFSDP_TRY(expect_one_of(part, "behavior", {"Isolated"}, place));
  MFSDP_TRY(expect_one_of(part, "invert", {false}, place));
  MFSDP_LET(pattern, object_field(part, "pattern", place));
  MFSDP_TRY(refuse_other_keys(*pattern, {"Regex"}, place + ".pattern"));
  MFSDP_LET(regex, text_field(*pattern, "Regex", place + ".pattern"));
  return read_pattern(regex, place);
}

/// Reads Splits and the ByteLevel at the end, which makes this a BPE of bytes.
Result<std::vector<SplitPattern>> read_pre_tokenizer(const Json& json, const std::string& where) {
  const std::string place = where + ": pre_tokenizer";
  MFSDP_LET(parts, flatten(part_of(json, "pre_tokenizer"), "pretokenizers", place));
  std::vector<SplitPattern> patterns;
  bool has_bytes = false;
  for (const Json* part : parts) {
    MFSDP_LET(type, text_field(*part, "type", place));
    if (has_bytes) return fail(place, "expected ByteLevel at the end, got more after it");
    if (type == "Split") {
      MFSDP_LET(pattern, read_split(*part, place));
      patterns.push_back(std::move(pattern));
    } else if (type == "ByteLevel") {
      has_bytes = true;
      MFSDP_TRY(refuse_other_keys(*part, {"type", "add_prefix_space", "trim_offsets", "use_regex"},
                                  place));
      MFSDP_TRY(expect_one_of(*part, "add_prefix_space", {false}, place));
      MFSDP_LET(splits, flag_field(*part, "use_regex", true, place));
      if (!splits) continue;
      MFSDP_LET(pattern, read_pattern(kByteLevelPattern, place));
      patterns.push_back(std::move(pattern));
    } else {
      return unsupported_type(place, type, "Split and ByteLevel");
    }
  }
  if (!has_bytes) return fail(place, "expected ByteLevel, which makes words of bytes");
  return patterns;
}

/// One entry of the "single" template: appends the ids of a special token.
Result<void> read_template_piece(const Json& piece, const Json& processor, const std::string& place,
                                 std::vector<std::int32_t>& ids) {
  MFSDP_LET(name, text_field(piece, "SpecialToken/id", place));
  MFSDP_LET(tokens, object_field(processor, "special_tokens", place));
  const auto token = tokens->find(name);
  if (token == tokens->end() || !token->is_object() || !token->contains("ids"))
    return fail(place, fmt::format("expected ids of {} in special_tokens", json_excerpt(name)));
  for (const Json& id : (*token)["ids"]) {
    if (!id.is_number_integer() || id < 0 || id >= kMostTokenIds)
      return fail(place, fmt::format("expected ids of {} in special_tokens, got {}",
                                     json_excerpt(name), json_excerpt(id)));
    ids.push_back(id.get<std::int32_t>());
  }
  return {};
}

Result<void> read_template(const Json& part, const std::string& place, Parts& parts) {
  MFSDP_TRY(refuse_other_keys(part, {"type", "single", "pair", "special_tokens"}, place));
  MFSDP_LET(single, list_field(part, "single", place));
  bool has_text = false;
  for (const Json& piece : *single) {
    if (!has_text && find_field(piece, "Sequence/id") != nullptr) {
      has_text = true;
    } else {
      MFSDP_TRY(read_template_piece(piece, part, place, has_text ? parts.end : parts.begin));
    }
  }
  if (!has_text) return fail(place, "expected a \"Sequence\" in \"single\"");
  return {};
}

Result<void> read_post_processor(const Json& json, const std::string& where, Parts& made) {
  const std::string place = where + ": post_processor";
  MFSDP_LET(parts, flatten(part_of(json, "post_processor"), "processors", place));
  bool has_template = false;
  for (const Json* part : parts) {
    MFSDP_LET(type, text_field(*part, "type", place));
    if (type == "ByteLevel") continue;  // only changes offsets of tokens, which are not used
    if (type != "TemplateProcessing" || has_template)
      return unsupported_type(place, type, "one TemplateProcessing, ByteLevel or none");
    has_template = true;
    MFSDP_TRY(read_template(*part, place, made));
  }
  return {};
}

Result<void> check_decoder(const Json& json, const std::string& where) {
  const std::string place = where + ": decoder";
  MFSDP_LET(parts, flatten(part_of(json, "decoder"), "decoders", place));
  for (const Json* part : parts) {
    MFSDP_LET(type, text_field(*part, "type", place));
    if (type != "ByteLevel") return unsupported_type(place, type, "ByteLevel");
  }
  return {};
}

// ---- added tokens ------------------------------------------------------------------------------

Result<AddedToken> read_added_token(const Json& json, const std::string& place) {
  MFSDP_TRY(refuse_other_keys(
      json, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}, place));
  AddedToken token;
  MFSDP_LET(id, integer_field(json, "id", place, {.most = kMostTokenIds - 1}));
  MFSDP_LET(content, text_field(json, "content", place));
  if (content.empty()) return fail(place, "expected text under \"content\"");
  for (const char* key : {"single_word", "lstrip", "rstrip"})
    MFSDP_TRY(expect_one_of(json, key, {false}, place));
  MFSDP_LET(special, flag_field(json, "special", false, place));
  MFSDP_LET(normalized, flag_field(json, "normalized", !special, place));
  return AddedToken{.id = static_cast<std::int32_t>(id),
                    .content = content,
                    .is_special = special,
                    .normalized = normalized};
}

Result<void> read_added_tokens(const Json& json, const std::string& where, Parts& parts) {
  std::vector<AddedToken> before;
  std::vector<AddedToken> after;
  const Json* list = part_of(json, "added_tokens");
  if (list != nullptr && !list->is_array())
    return fail(where + ": added_tokens", "expected a list, got " + json_excerpt(*list));
  for (std::size_t i = 0; list != nullptr && i < list->size(); ++i) {
    const std::string place = fmt::format("{}: added_tokens[{}]", where, i);
    MFSDP_LET(token, read_added_token((*list)[i], place));
    const auto row = static_cast<std::size_t>(token.id);
    const auto known = parts.by_text.find(token.content);
    const bool has_other_id = known != parts.by_text.end() && known->second != token.id;
    const bool is_another =
        row < parts.is_there.size() && parts.is_there[row] && parts.bytes_of[row] != token.content;
    if (has_other_id || is_another)
      return fail(place, fmt::format("expected {} to have the id {} alone, the file has another",
                                     json_excerpt(token.content), token.id));
    if (row >= parts.bytes_of.size()) parts.bytes_of.resize(row + 1);
    parts.is_there.resize(parts.bytes_of.size());
    parts.is_special.resize(parts.bytes_of.size());
    parts.bytes_of[row] = token.content;
    parts.is_there[row] = true;
    parts.is_special[row] = token.is_special;
    parts.by_text.insert_or_assign(token.content, token.id);
    if (!token.normalized) {
      before.push_back(std::move(token));
    } else {
      if (parts.normal_form_c) MFSDP_SET(token.content, normal_form_c(token.content));
      after.push_back(std::move(token));
    }
  }
  parts.is_special.resize(parts.bytes_of.size());
  parts.before_normal_form = AddedTokens(std::move(before));
  parts.after_normal_form = AddedTokens(std::move(after));
  return {};
}

Result<void> check_ids(const Parts& parts) {
  for (const auto* ids : {&parts.begin, &parts.end})
    for (const std::int32_t id : *ids)
      if (id >= std::ssize(parts.is_there) || !parts.is_there[static_cast<std::size_t>(id)])
        return fail(parts.where + ": post_processor",
                    fmt::format("expected ids of tokens, {} is none's", id));
  return {};
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::parse(std::string_view text,
                                                          const std::string& where) {
  MFSDP_LET(json, parse_json(text, where));
  // "truncation" and "padding" are settings of the last call; transformers overwrites them.
  MFSDP_TRY(refuse_other_keys(json,
                              {"version", "truncation", "padding", "added_tokens", "normalizer",
                               "pre_tokenizer", "post_processor", "decoder", "model"},
                              where));
  MFSDP_LET(normal_form_c, read_normalizer(json, where));
  MFSDP_LET(patterns, read_pre_tokenizer(json, where));
  MFSDP_TRY(check_decoder(json, where));
  TokenTables tables;
  MFSDP_LET(bpe, read_bpe(json, where, tables));
  Parts parts{.where = where,
              .normal_form_c = normal_form_c,
              .patterns = std::move(patterns),
              .bpe = std::move(bpe),
              .bytes_of = std::move(tables.bytes_of),
              .is_there = std::move(tables.is_there),
              .by_text = std::move(tables.by_text)};
  MFSDP_TRY(read_added_tokens(json, where, parts));
  MFSDP_TRY(read_post_processor(json, where, parts));
  MFSDP_TRY(check_ids(parts));
  return std::make_shared<const Tokenizer>(std::move(parts));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::open(const std::filesystem::path& path) {
  constexpr std::size_t kMostBytes = std::size_t{256} << 20;
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  const std::filesystem::path file = is_folder ? path / "tokenizer.json" : path;
  MFSDP_LET(text, read_file(file, "a tokenizer.json", kMostBytes));
  return parse(text, file.string());
}

}  // namespace mfsdp
