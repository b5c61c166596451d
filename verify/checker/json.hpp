// Fields of JSON that may be missing or of another kind. For sources of this folder only.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "verify/checker/plan_view.hpp"

namespace mfsdp::checker {

using Json = nlohmann::json;

/// Numbers of plans and certificates are integers from 0 to here: sums of a few never overflow.
inline constexpr std::int64_t kMost = std::int64_t{1} << 60;

inline const Json& field(const Json& object, const char* key) {
  if (!object.is_object() || !object.contains(key)) throw Refusal{key, "missing"};
  return object[key];
}

inline const Json& list(const Json& object, const char* key) {
  static const Json none = Json::array();
  if (object.is_object() && !object.contains(key)) return none;  // empty lists may be left out
  if (!field(object, key).is_array()) throw Refusal{key, "expected a list"};
  return object[key];
}

inline std::int64_t as_integer(const Json& value, const char* key, std::int64_t most = kMost) {
  const bool fits = value.is_number_unsigned() && value.get<std::uint64_t>() <= std::uint64_t(most);
  if (!fits) throw Refusal{key, fmt::format("expected an integer from 0 to {}", most)};
  return value.get<std::int64_t>();
}
inline std::int64_t integer(const Json& object, const char* key, std::int64_t most = kMost) {
  return as_integer(field(object, key), key, most);
}

inline std::string text(const Json& object, const char* key) {
  if (!field(object, key).is_string()) throw Refusal{key, "expected a string"};
  return object[key].get<std::string>();
}

/// 128 bits (XXH3) of a document, sorted keys and without spaces, as hexadecimal digits.
std::string hash_of(const Json& document);

}  // namespace mfsdp::checker
