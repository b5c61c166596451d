#include "core/base/json_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

namespace mfsdp {
namespace {

constexpr auto kReplace = nlohmann::json::error_handler_t::replace;

/// NaN, Infinity or -Infinity for a number that JSON cannot hold; none for all other values.
std::optional<std::string> word_number(const nlohmann::json& value) {
  if (!value.is_number_float() || std::isfinite(value.get<double>())) return std::nullopt;
  if (std::isnan(value.get<double>())) return "NaN";
  return value > 0 ? "Infinity" : "-Infinity";
}

/// The value with those words instead of such numbers, which a dump would write as null.
nlohmann::json with_word_numbers(nlohmann::json value) {
  if (auto word = word_number(value)) return std::move(*word);
  if (value.is_structured())
    for (nlohmann::json& item : value) item = with_word_numbers(std::move(item));
  return value;
}

}  // namespace

std::string json_literal(std::string_view text) {
  const bool stands_for_itself = std::ranges::all_of(
      text, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
  if (stands_for_itself) return fmt::format("\"{}\"", text);  // nearly all texts; many times faster
  return nlohmann::json(text).dump(-1, ' ', false, kReplace);
}

std::string json_excerpt(const nlohmann::json& value) {
  constexpr std::size_t kLongest = 40;
  if (const auto word = word_number(value)) return *word;
  std::string text = with_word_numbers(value).dump(-1, ' ', true, kReplace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace mfsdp
