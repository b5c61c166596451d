#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/json_text.hpp"
#include "core/base/text.hpp"
#include "core/formats/json_fields.hpp"
#include "gpu_backend/train/text/byte_alphabet.hpp"
#include "gpu_backend/train/text/tokenizer_json.hpp"

namespace mfsdp {

Result<void> refuse_other_keys(const nlohmann::json& object,
                               std::initializer_list<std::string_view> known,
                               const std::string& where) {
  if (!object.is_object()) return fail(where, "expected an object, got " + json_excerpt(object));
  for (const auto& [key, value] : object.items())
    if (std::ranges::find(known, key) == known.end())
      return fail(where, fmt::format("\"{}\" is not supported", printable(key)));
  return {};
}

Result<void> expect_one_of(const nlohmann::json& object, const char* key,
                           std::initializer_list<nlohmann::json> allowed,
                           const std::string& where) {
  const auto found = object.find(key);
  if (found == object.end() || std::ranges::find(allowed, *found) != allowed.end()) return {};
  return fail(where, fmt::format("\"{}\": {} is not supported, expected {}", key,
                                 json_excerpt(*found), json_excerpt(*allowed.begin())));
}

Result<bool> flag_field(const nlohmann::json& object, const char* key, bool otherwise,
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

namespace {

using Json = nlohmann::json;

Result<void> read_vocab(const Json& model, const std::string& where, TokenTables& tables,
                        TextMap<std::int32_t>& by_bytes) {
  const std::string place = where + ": model.vocab";
  MFSDP_LET(vocab, object_field(model, "vocab", where + ": model"));
  for (const auto& [token, id] : vocab->items()) {
    if (!id.is_number_integer() || id < 0 || id >= kMostTokenIds)
      return fail(place, fmt::format("expected an id from 0 to {} for {}, got {}",
                                     kMostTokenIds - 1, json_excerpt(token), json_excerpt(id)));
    const auto row = id.get<std::size_t>();
    if (row >= tables.bytes_of.size()) {
      tables.bytes_of.resize(row + 1);
      tables.is_there.resize(row + 1);
    }
    if (tables.is_there[row])
      return fail(place, fmt::format("expected one token of the id {}, {} is another", row,
                                     json_excerpt(token)));
    // Text never produces a token with a character that represents no byte.
    const auto bytes = bytes_of_token(token);
    if (bytes) by_bytes.emplace(*bytes, static_cast<std::int32_t>(row));
    tables.bytes_of[row] = bytes.value_or(token);
    tables.is_there[row] = true;
    tables.by_text.emplace(token, static_cast<std::int32_t>(row));
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
                               const TokenTables& tables) {
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
      const auto id = tables.by_text.find(tokens[i]);
      if (id == tables.by_text.end())
        return fail(place(), fmt::format("expected a token of the vocabulary, {} is none",
                                         json_excerpt(tokens[i])));
      ids[i] = id->second;
    }
    table.insert(ids[0], ids[1], static_cast<std::int32_t>(rank), ids[2]);
  }
  return table;
}

}  // namespace

Result<Bpe> read_bpe(const nlohmann::json& json, const std::string& where, TokenTables& tables) {
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
  // "unk_token" and "fuse_unk" have no effect if each byte is a token.
  MFSDP_TRY(expect_one_of(*model, "dropout", {nullptr, 0}, place));
  MFSDP_TRY(expect_one_of(*model, "continuing_subword_prefix", {nullptr, ""}, place));
  MFSDP_TRY(expect_one_of(*model, "end_of_word_suffix", {nullptr, ""}, place));
  MFSDP_TRY(expect_one_of(*model, "byte_fallback", {false, nullptr}, place));
  MFSDP_LET(ignore_merges, flag_field(*model, "ignore_merges", false, place));
  TextMap<std::int32_t> by_bytes;
  MFSDP_TRY(read_vocab(*model, where, tables, by_bytes));
  MFSDP_LET(merges, read_merges(*model, where, tables));
  return Bpe::create(std::move(by_bytes), std::move(merges), ignore_merges, where);
}

}  // namespace mfsdp
