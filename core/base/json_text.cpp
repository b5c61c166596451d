#include "core/base/json_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace mfsdp {
namespace {

constexpr auto kReplace = nlohmann::json::error_handler_t::replace;

}  // namespace

std::string json_literal(std::string_view text) {
  const bool stands_for_itself = std::ranges::all_of(
      text, [](char c) { return c >= ' ' && c <= '~' && c != '"' && c != '\\'; });
  if (stands_for_itself) return fmt::format("\"{}\"", text);  // nearly all texts; many times faster
  return nlohmann::json(text).dump(-1, ' ', false, kReplace);
}

std::string json_excerpt(const nlohmann::json& value) {
  constexpr std::size_t kLongest = 40;
  std::string text = value.dump(-1, ' ', true, kReplace);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "...";
  return text;
}

}  // namespace mfsdp
