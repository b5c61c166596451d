// Reads fields of unchecked JSON documents.
//
// A field's path is its keys joined by '/': "time/step_ns". Errors name the place and the expected
// value: "run.json.time.step_ns: expected ..., got ...".
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// The value at the path, or null.
[[nodiscard]] const nlohmann::json* find_field(const nlohmann::json& object, std::string_view path);

/// The value at the path, of any type, or an error.
[[nodiscard]] Result<const nlohmann::json*> any_field(const nlohmann::json& object,
                                                      std::string_view path,
                                                      const std::string& where);
[[nodiscard]] Result<const nlohmann::json*> object_field(const nlohmann::json& object,
                                                         std::string_view path,
                                                         const std::string& where);
[[nodiscard]] Result<const nlohmann::json*> list_field(const nlohmann::json& object,
                                                       std::string_view path,
                                                       const std::string& where);

/// Both are allowed.
struct IntegerRange {
  std::int64_t least = 0;
  std::int64_t most = std::numeric_limits<std::int64_t>::max();
};
[[nodiscard]] Result<std::int64_t> integer_field(const nlohmann::json& object,
                                                 std::string_view path, const std::string& where,
                                                 IntegerRange range = {});
[[nodiscard]] Result<std::uint64_t> unsigned_field(const nlohmann::json& object,
                                                   std::string_view path, const std::string& where);
/// Finite.
[[nodiscard]] Result<double> number_field(const nlohmann::json& object, std::string_view path,
                                          const std::string& where);
[[nodiscard]] Result<std::string> text_field(const nlohmann::json& object, std::string_view path,
                                             const std::string& where);

}  // namespace mfsdp
