#include "reports/import/python_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <string>

namespace mfsdp {
namespace {

/// The text with "NaN", "Infinity" and "-Infinity" as strings where they are no part of one.
std::string with_quoted_words(std::string_view line) {
  constexpr std::array<std::string_view, 3> words{"NaN", "Infinity", "-Infinity"};
  std::string text;
  bool in_string = false;
  for (std::size_t i = 0; i < line.size();) {
    const auto word = std::ranges::find_if(
        words, [&](std::string_view each) { return line.substr(i).starts_with(each); });
    if (!in_string && word != words.end()) {
      text += fmt::format("\"{}\"", *word);
      i += word->size();
      continue;
    }
    const bool escapes = in_string && line[i] == '\\' && i + 1 < line.size();
    if (line[i] == '"') in_string = !in_string;
    const std::size_t count = escapes ? 2 : 1;
    text += line.substr(i, count);
    i += count;
  }
  return text;
}

}  // namespace

nlohmann::json parse_python_json(std::string_view text) {
  return nlohmann::json::parse(with_quoted_words(text), nullptr, /*allow_exceptions=*/false);
}

std::optional<double> python_number(const nlohmann::json& value) {
  constexpr double infinite = std::numeric_limits<double>::infinity();
  if (value.is_number()) return value.get<double>();
  if (value == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (value == "Infinity") return infinite;
  if (value == "-Infinity") return -infinite;
  return std::nullopt;
}

}  // namespace mfsdp
