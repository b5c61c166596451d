#include "gpu_backend/launch/variables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "core/base/excerpt.hpp"

namespace mfsdp {

std::optional<std::string> find_variable(const Environment& environment, std::string_view name) {
  const auto found = environment.find(name);
  if (found == environment.end()) return std::nullopt;
  return found->second;
}

std::optional<std::string_view> first_set(const Environment& environment,
                                          std::span<const std::string_view> names) {
  const auto found = std::ranges::find_if(
      names, [&](std::string_view name) { return environment.contains(name); });
  if (found == names.end()) return std::nullopt;
  return *found;
}

tl::unexpected<Error> refuse_variable(std::string_view name, std::string_view text,
                                      std::string_view expected) {
  return fail(fmt::format("environment, {}", name),
              fmt::format("expected {}, got \"{}\"", expected, excerpt(text)));
}

tl::unexpected<Error> refuse_missing(std::string_view name, std::string_view other,
                                     std::string_view expected) {
  return fail(fmt::format("environment, {}", name),
              fmt::format("is not set, but {} is: expected {}", other, expected));
}

std::optional<std::int64_t> parse_number(std::string_view text, std::int64_t least,
                                         std::int64_t most) {
  std::int64_t value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), end, value);
  if (code != std::errc() || stop != end || value < least || value > most) return std::nullopt;
  return value;
}

Result<std::int64_t> read_number(const Environment& environment, std::string_view name,
                                 std::string_view other, std::int64_t least, std::int64_t most) {
  const std::string expected = fmt::format("a whole number from {} to {}", least, most);
  const auto text = find_variable(environment, name);
  if (!text) return refuse_missing(name, other, expected);
  const auto value = parse_number(*text, least, most);
  if (!value) return refuse_variable(name, *text, expected);
  return *value;
}

}  // namespace mfsdp
