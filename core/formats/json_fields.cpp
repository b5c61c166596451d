#include "core/formats/json_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/json_text.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

std::string place_of(std::string_view path, const std::string& where) {
  std::string keys(path);
  std::ranges::replace(keys, '/', '.');
  return fmt::format("{}.{}", where, keys);
}

/// The field, if `is_right` accepts it.
Result<const Json*> checked(const Json& object, std::string_view path, const std::string& where,
                            std::string_view expected, const auto& is_right) {
  const Json* found = find_field(object, path);
  if (found != nullptr && is_right(*found)) return found;
  return fail(place_of(path, where),
              fmt::format("expected {}, got {}", expected,
                          found == nullptr ? "nothing" : json_excerpt(*found)));
}

bool lies_in(const Json& value, const IntegerRange& range) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<std::uint64_t>();
    return std::cmp_less_equal(range.least, number) && std::cmp_less_equal(number, range.most);
  }
  if (!value.is_number_integer()) return false;
  const auto number = value.get<std::int64_t>();
  return range.least <= number && number <= range.most;
}

}  // namespace

const Json* find_field(const Json& object, std::string_view path) {
  const Json* at = &object;
  while (true) {
    if (!at->is_object()) return nullptr;
    const std::size_t slash = path.find('/');
    const auto found = at->find(std::string(path.substr(0, slash)));
    if (found == at->end()) return nullptr;
    at = &*found;
    if (slash == std::string_view::npos) return at;
    path.remove_prefix(slash + 1);
  }
}

Result<const Json*> any_field(const Json& object, std::string_view path, const std::string& where) {
  return checked(object, path, where, "a value", [](const Json&) { return true; });
}

Result<const Json*> object_field(const Json& object, std::string_view path,
                                 const std::string& where) {
  return checked(object, path, where, "an object",
                 [](const Json& value) { return value.is_object(); });
}

Result<const Json*> list_field(const Json& object, std::string_view path,
                               const std::string& where) {
  return checked(object, path, where, "a list", [](const Json& value) { return value.is_array(); });
}

Result<std::int64_t> integer_field(const Json& object, std::string_view path,
                                   const std::string& where, IntegerRange range) {
  MFSDP_LET(field, checked(object, path, where,
                           fmt::format("an integer from {} to {}", range.least, range.most),
                           [&](const Json& value) { return lies_in(value, range); }));
  return field->get<std::int64_t>();
}

Result<std::uint64_t> unsigned_field(const Json& object, std::string_view path,
                                     const std::string& where) {
  MFSDP_LET(field, checked(object, path, where, "an integer from 0 to 2^64 - 1",
                           [](const Json& value) { return value.is_number_unsigned(); }));
  return field->get<std::uint64_t>();
}

Result<double> number_field(const Json& object, std::string_view path, const std::string& where) {
  MFSDP_LET(field, checked(object, path, where, "a number", [](const Json& value) {
              return value.is_number() && std::isfinite(value.get<double>());
            }));
  return field->get<double>();
}

Result<std::string> text_field(const Json& object, std::string_view path,
                               const std::string& where) {
  MFSDP_LET(field, checked(object, path, where, "text",
                           [](const Json& value) { return value.is_string(); }));
  return field->get<std::string>();
}

}  // namespace mfsdp
