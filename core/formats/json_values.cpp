#include "core/formats/json_values.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace mfsdp {
namespace {

constexpr std::size_t kMostLevels = 64;

class JsonValues {
 public:
  /// Null if the document is nested too deeply.
  const PickleValue* add(const nlohmann::json& json, std::size_t level) {
    if (level > kMostLevels) return nullptr;
    if (json.is_object()) return add_dict(json, level);
    if (json.is_array()) return add_list(json, level);
    if (json.is_string()) return keep(json.get_ref<const std::string&>());
    if (json.is_boolean()) return keep(json.get<bool>());
    if (json.is_number_unsigned() && !std::in_range<std::int64_t>(json.get<std::uint64_t>()))
      return keep(json.get<double>());
    if (json.is_number_integer()) return keep(json.get<std::int64_t>());
    if (json.is_number()) return keep(json.get<double>());
    return keep(std::monostate());
  }

  PickleDocument take(const PickleValue* root) {
    document_.root = root;
    return std::move(document_);
  }

 private:
  const PickleValue* keep(auto value) {
    return &document_.values.emplace_back(PickleValue{std::move(value)});
  }

  const PickleValue* add_list(const nlohmann::json& json, std::size_t level) {
    PickleList list;
    for (const nlohmann::json& item : json) {
      list.items.push_back(add(item, level + 1));
      if (list.items.back() == nullptr) return nullptr;
    }
    return keep(std::move(list));
  }

  const PickleValue* add_dict(const nlohmann::json& json, std::size_t level) {
    PickleDict dict;
    for (const auto& [key, item] : json.items()) {
      dict.items.emplace_back(keep(key), add(item, level + 1));
      if (dict.items.back().second == nullptr) return nullptr;
    }
    return keep(std::move(dict));
  }

  PickleDocument document_;
};

}  // namespace

Result<PickleDocument> read_json_values(std::string_view bytes, const std::string& where) {
  try {
    JsonValues values;
    const PickleValue* root = values.add(nlohmann::json::parse(bytes), 0);
    if (root == nullptr)
      return fail(where, fmt::format("nested deeper than {} levels", kMostLevels));
    return values.take(root);
  } catch (const nlohmann::json::parse_error& error) {
    return fail(fmt::format("{}: byte {}", where, error.byte), "expected JSON");
  } catch (const nlohmann::json::out_of_range&) {
    return fail(where, "expected numbers up to 1.8e308");
  }
}

}  // namespace mfsdp
