// Fields of a JSON document that others wrote, checked. Errors name the field.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// What lies at `path`, keys joined by '/' ("time/step_ns"); null where nothing does.
[[nodiscard]] const nlohmann::json* find_field(const nlohmann::json& object, std::string_view path);

/// The same, or an error.
[[nodiscard]] Result<const nlohmann::json*> field(const nlohmann::json& object,
                                                  std::string_view path, const std::string& where);

/// An integer from `least` to 1e15.
[[nodiscard]] Result<std::int64_t> integer_field(const nlohmann::json& object,
                                                 std::string_view path, const std::string& where,
                                                 std::int64_t least = 0);

[[nodiscard]] Result<double> number_field(const nlohmann::json& object, std::string_view path,
                                          const std::string& where);

[[nodiscard]] Result<std::string> text_field(const nlohmann::json& object, std::string_view path,
                                             const std::string& where);

}  // namespace mfsdp
