// tokenizer.json to a Tokenizer. What is not known is refused by name: ids that differ from those
// the model was trained with spoil a run and nobody sees it.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

#include "core/base/json_text.hpp"
#include "core/base/parse_json.hpp"
#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/formats/json_fields.hpp"
#include "gpu_backend/train/text/byte_alphabet.hpp"
#include "gpu_backend/train/text/normal_form.hpp"
#include "gpu_backend/train/text/pattern_text.hpp"
#include "gpu_backend/train/text/tokenizer.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;
using Parts = Tokenizer::Parts;

/// What ByteLevel splits with where "use_regex" is true or not there.
constexpr std::string_view kByteLevelPattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

/// Far above any that is known; ids index tables.
constexpr std::int64_t kMostIds = std::int64_t{1} << 24;

/// Tokens by id and by name.
struct TokenTables {
  std::vector<std::string> bytes_of;
  std::vector<bool> is_there;
  TextMap<std::int32_t> by_text;
};

/// An optional object: null where it is not there or null.
const Json* part_of(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found == json.end() || found->is_null() ? nullptr : &*found;
}

Result<void> refuse_other_keys(const Json& object, std::initializer_list<std::string_view> known,
                               const std::string& where) {
  if (!object.is_object()) return fail(where, "expected an object, got " + json_excerpt(object));
  for (const auto& [key, value] : object.items())
    if (std::ranges::find(known, key) == known.end())
      return fail(where, fmt::format("\"{}\" is not supported", printable(key)));
  return {};
}

/// An error unless the field is one of these or not there.
Result<void> expect_one_of(const Json& object, const char* key, std::initializer_list<Json> allowed,
                           const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || std::ranges::find(allowed, *found) != allowed.end()) return {};
  return fail(where, fmt::format("\"{}\": {} is not supported, expected {}", key,
                                 json_excerpt(*found), json_excerpt(*allowed.begin())));
}

Result<bool> flag_field(const Json& object, const char* key, bool otherwise,
                        const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end()) return otherwise;
  if (!found->is_boolean())
    return fail(where, fmt::format("expected true or false under \"{}\", got {}", key,
                                   json_excerpt(*found)));
  return found->get<bool>();
}

tl::unexpected<Error> unsupported_type(const std::string& where, const std::string& type,
                                       std::string_view supported) {
  return fail(where,
              fmt::format("\"{}\" is not supported, expected {}", printable(type), supported));
}

/// The parts of a "Sequence", or the part alone.
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

// ---- the model ----------------------------------------------------------------------------------

Result<void> read_vocab(const Json& model, const std::string& where, TokenTables& parts,
                        TextMap<std::int32_t>& by_bytes) {
  const std::string place = where + ": model.vocab";
  MFSDP_LET(vocab, object_field(model, "vocab", where + ": model"));
  for (const auto& [token, id] : vocab->items()) {
    if (!id.is_number_integer() || id < 0 || id >= kMostIds)
      return fail(place, fmt::format("expected an id from 0 to {} for {}, got {}", kMostIds - 1,
                                     json_excerpt(token), json_excerpt(id)));
    const auto row = id.get<std::size_t>();
    if (row >= parts.bytes_of.size()) {
      parts.bytes_of.resize(row + 1);
      parts.is_there.resize(row + 1);
    }
    if (parts.is_there[row])
      return fail(place, fmt::format("expected one token of the id {}, {} is another", row,
                                     json_excerpt(token)));
    // A token with other characters than those of bytes is never made of text.
    const auto bytes = bytes_of_token(token);
    if (bytes) by_bytes.emplace(*bytes, static_cast<std::int32_t>(row));
    parts.bytes_of[row] = bytes.value_or(token);
    parts.is_there[row] = true;
    parts.by_text.emplace(token, static_cast<std::int32_t>(row));
  }
  return {};
}

/// "a b" or ["a", "b"].
Result<std::pair<std::string, std::string>> read_pair(const Json& merge, const std::string& where) {
  if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string())
    return std::pair{merge[0].get<std::string>(), merge[1].get<std::string>()};
  if (merge.is_string()) {
    const auto& text = merge.get_ref<const std::string&>();
    const std::size_t space = text.find(' ');
    if (space != std::string::npos && text.find(' ', space + 1) == std::string::npos)
      return std::pair{text.substr(0, space), text.substr(space + 1)};
  }
  return fail(where, "expected \"a b\" or [\"a\", \"b\"], got " + json_excerpt(merge));
}

Result<MergeTable> read_merges(const Json& model, const std::string& where,
                               const TokenTables& parts) {
  MFSDP_LET(merges, list_field(model, "merges", where + ": model"));
  MergeTable table(merges->size());
  for (std::size_t rank = 0; rank < merges->size(); ++rank) {
    const auto place = [&] { return fmt::format("{}: model.merges[{}]", where, rank); };
    auto pair = read_pair((*merges)[rank], "");
    if (!pair) return fail(place(), pair.error().what);
    const auto& [left, right] = *pair;
    std::array<std::int32_t, 3> ids{};
    const std::array<const std::string, 3> tokens{left, right, left + right};
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      const auto id = parts.by_text.find(tokens[i]);
      if (id == parts.by_text.end())
        return fail(place(), fmt::format("expected a token of the vocabulary, {} is none",
                                         json_excerpt(tokens[i])));
      ids[i] = id->second;
    }
    table.insert(ids[0], ids[1], static_cast<std::int32_t>(rank), ids[2]);
  }
  return table;
}

Result<Bpe> read_model(const Json& json, const std::string& where, TokenTables& parts) {
  const std::string place = where + ": model";
  MFSDP_LET(model, object_field(json, "model", where));
  if (const auto type = model->find("type"); type != model->end() && *type != "BPE")
    return unsupported_type(place, type->is_string() ? type->get<std::string>() : "type",
                            "a BPE of bytes");
  MFSDP_TRY(refuse_other_keys(
      *model,
      {"type", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix",
       "fuse_unk", "byte_fallback", "ignore_merges", "vocab", "merges"},
      place));
  // "unk_token" and "fuse_unk" mean nothing where each byte is a token.
  MFSDP_TRY(expect_one_of(*model, "dropout", {nullptr, 0}, place));
  MFSDP_TRY(expect_one_of(*model, "continuing_subword_prefix", {nullptr, ""}, place));
  MFSDP_TRY(expect_one_of(*model, "end_of_word_suffix", {nullptr, ""}, place));
  MFSDP_TRY(expect_one_of(*model, "byte_fallback", {false, nullptr}, place));
  MFSDP_LET(ignore_merges, flag_field(*model, "ignore_merges", false, place));
  TextMap<std::int32_t> by_bytes;
  MFSDP_TRY(read_vocab(*model, where, parts, by_bytes));
  MFSDP_LET(merges, read_merges(*model, where, parts));
  return Bpe::create(std::move(by_bytes), std::move(merges), ignore_merges, where);
}

// ---- what is before and after it ----------------------------------------------------------------

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

/// Splits, and at the end ByteLevel: what makes this a BPE of bytes.
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
    if (!id.is_number_integer() || id < 0 || id >= kMostIds)
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
    if (type == "ByteLevel") continue;  // places of tokens in the text, which nobody asks for
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

// ---- added tokens -------------------------------------------------------------------------------

Result<AddedToken> read_added_token(const Json& json, const std::string& place) {
  MFSDP_TRY(refuse_other_keys(
      json, {"id", "content", "single_word", "lstrip", "rstrip", "normalized", "special"}, place));
  AddedToken token;
  MFSDP_LET(id, integer_field(json, "id", place, {.most = kMostIds - 1}));
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
    MFSDP_LET(token, read_added_token((*list)[i], fmt::format("{}: added_tokens[{}]", where, i)));
    const auto row = static_cast<std::size_t>(token.id);
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
      if (parts.normal_form_c) {
        MFSDP_LET(composed, normal_form_c(token.content));
        token.content = composed;
      }
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
  // "truncation" and "padding" are what the last call asked for; transformers sets them anew.
  MFSDP_TRY(refuse_other_keys(json,
                              {"version", "truncation", "padding", "added_tokens", "normalizer",
                               "pre_tokenizer", "post_processor", "decoder", "model"},
                              where));
  MFSDP_LET(normal_form_c, read_normalizer(json, where));
  MFSDP_LET(patterns, read_pre_tokenizer(json, where));
  MFSDP_TRY(check_decoder(json, where));
  TokenTables tables;
  MFSDP_LET(bpe, read_model(json, where, tables));
  Parts parts{.where = where,
              .normal_form_c = normal_form_c,
              .patterns = std::move(patterns),
              .bpe = std::move(bpe),
              .bytes_of = std::move(tables.bytes_of),
              .is_special = {},
              .is_there = std::move(tables.is_there),
              .by_text = std::move(tables.by_text),
              .begin = {},
              .end = {}};
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
