#include "gpu_backend/checkpoint/json_fields.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/base/json_text.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

template <class Check>
Result<const Json*> find(const Json& object, const char* key, const std::string& where,
                         std::string_view expected, const Check& check) {
  const auto found = object.find(key);
  if (found == object.end())
    return fail(fmt::format("{}.{}", where, key),
                fmt::format("expected {}, got nothing", expected));
  if (check(*found)) return &*found;
  return fail(fmt::format("{}.{}", where, key),
              fmt::format("expected {}, got {}", expected, json_excerpt(*found)));
}

}  // namespace

Result<std::int64_t> integer_field(const Json& object, const char* key, const std::string& where,
                                   std::int64_t most) {
  MFSDP_LET(field, find(object, key, where, fmt::format("an integer from 0 to {}", most),
                        [&](const Json& value) {
                          return value.is_number_unsigned() &&
                                 std::cmp_less_equal(value.get<std::uint64_t>(), most);
                        }));
  return field->get<std::int64_t>();
}

Result<std::uint64_t> unsigned_field(const Json& object, const char* key,
                                     const std::string& where) {
  MFSDP_LET(field, find(object, key, where, "an integer from 0 to 2^64 - 1",
                        [](const Json& value) { return value.is_number_unsigned(); }));
  return field->get<std::uint64_t>();
}

Result<double> real_field(const Json& object, const char* key, const std::string& where) {
  MFSDP_LET(field, find(object, key, where, "a number", [](const Json& value) {
              return value.is_number() && std::isfinite(value.get<double>());
            }));
  return field->get<double>();
}

Result<std::string> text_field(const Json& object, const char* key, const std::string& where) {
  MFSDP_LET(field,
            find(object, key, where, "text", [](const Json& value) { return value.is_string(); }));
  return field->get<std::string>();
}

Result<std::uint64_t> checksum_value(const Json& value, const std::string& where) {
  constexpr std::size_t kDigits = 16;
  constexpr int kBase = 16;
  if (value.is_string()) {
    const auto& text = value.get_ref<const std::string&>();
    std::uint64_t number = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), number, kBase);
    if (text.size() == kDigits && read.ec == std::errc() && read.ptr == text.data() + text.size())
      return number;
  }
  return fail(where, "expected 16 hexadecimal digits, got " + json_excerpt(value));
}

Result<std::uint64_t> checksum_field(const Json& object, const char* key,
                                     const std::string& where) {
  MFSDP_LET(field,
            find(object, key, where, "16 hexadecimal digits", [](const Json&) { return true; }));
  return checksum_value(*field, fmt::format("{}.{}", where, key));
}

Result<const Json*> object_field(const Json& object, const char* key, const std::string& where) {
  return find(object, key, where, "an object", [](const Json& value) { return value.is_object(); });
}

Result<const Json*> list_field(const Json& object, const char* key, const std::string& where) {
  return find(object, key, where, "a list", [](const Json& value) { return value.is_array(); });
}

}  // namespace mfsdp
