#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/json_text.hpp"
#include "core/base/text.hpp"
#include "core/model/hf_parts.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

/// Objects that hold the language model of a model of several parts.
constexpr std::array kTextObjects{"text_config", "llm_config"};

/// Fields that classes of several parts have beside these objects.
constexpr std::array kOuterFields{"model_type", "quantization_config", "tie_word_embeddings"};

/// The objects of other parts.
std::vector<std::string> other_parts(const Json& document, std::string_view text_part) {
  std::vector<std::string> names;
  for (const auto& [key, value] : document.items())
    if (key.ends_with("_config") && value.is_object() && key != text_part &&
        key != "quantization_config")
      names.push_back(key);
  return names;
}

/// Older files of Qwen's classes have the language model's fields outside of objects, and its
/// model_type without "_text".
std::optional<HfTextPart> flat_text_part(const Json& document) {
  const auto type = document.find("model_type");
  if (type == document.end() || !type->is_string() || !document.contains("vision_config"))
    return {};
  const std::string of_text = type->get<std::string>() + "_text";
  if (std::ranges::find(hf_families(), of_text, &HfFamily::model_type) == hf_families().end())
    return {};
  HfTextPart part{.config = std::make_shared<Json>(document)};
  Json& config = *part.config;
  const std::vector<std::string> others = other_parts(document, {});
  for (const std::string& name : others) config.erase(name);
  config.erase("architectures");  // the class of the whole
  config["model_type"] = of_text;
  part.note =
      fmt::format("only the language model is planned, without {}", fmt::join(others, ", "));
  return part;
}

}  // namespace

Result<HfTextPart> text_part_of(const Json& document, const std::string& where) {
  const auto* const name = std::ranges::find_if(kTextObjects, [&](const char* object) {
    return document.contains(object) && document.at(object).is_object();
  });
  if (name == kTextObjects.end())
    return flat_text_part(document).value_or(
        HfTextPart{.config = std::make_shared<Json>(document)});
  HfTextPart part{.config = std::make_shared<Json>(document.at(*name)),
                  .prefix = std::string(*name) + "."};
  Json& config = *part.config;
  for (const char* const outer : kOuterFields) {
    if (!document.contains(outer) || document.at(outer).is_null()) continue;
    const Json& value = document.at(outer);
    if (!config.contains(outer) || config.at(outer).is_null())
      config[outer] = value;
    else if (value.is_boolean() && config.at(outer) != value)
      return fail(where, fmt::format("{}{}: expected {}, as outside, got {}", part.prefix, outer,
                                     json_excerpt(value), json_excerpt(config.at(outer))));
  }
  const std::vector<std::string> others = other_parts(document, *name);
  part.note = fmt::format(
      "only the language model is planned ({}){}", *name,
      others.empty() ? std::string() : fmt::format(", without {}", fmt::join(others, ", ")));
  part.note = printable(*part.note);
  return part;
}

}  // namespace mfsdp
