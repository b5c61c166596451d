#include "sim/calibrate/json_fields.hpp"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace mfsdp {

using Json = nlohmann::json;

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

Result<const Json*> field(const Json& object, std::string_view path, const std::string& where) {
  if (const Json* found = find_field(object, path)) return found;
  return fail(where, fmt::format("{} is missing", path));
}

Result<std::int64_t> integer_field(const Json& object, std::string_view path,
                                   const std::string& where, std::int64_t least) {
  constexpr std::int64_t kMost = 1'000'000'000'000'000;
  MFSDP_LET(value, field(object, path, where));
  const std::int64_t number = value->is_number_integer() ? value->get<std::int64_t>() : -1;
  if (number < least || number > kMost)
    return fail(where, fmt::format("{}: expected an integer from {} to 1e15", path, least));
  return number;
}

Result<double> number_field(const Json& object, std::string_view path, const std::string& where) {
  MFSDP_LET(value, field(object, path, where));
  if (!value->is_number()) return fail(where, fmt::format("{}: expected a number", path));
  return value->get<double>();
}

Result<std::string> text_field(const Json& object, std::string_view path,
                               const std::string& where) {
  MFSDP_LET(value, field(object, path, where));
  if (!value->is_string()) return fail(where, fmt::format("{}: expected text", path));
  return value->get<std::string>();
}

}  // namespace mfsdp
