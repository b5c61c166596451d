// Fields of JSON objects that nobody has checked yet. Internal to this folder.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/base/error.hpp"

namespace mfsdp {

/// Errors of all: "<where>.<key>: expected ..., got ...".
[[nodiscard]] Result<std::int64_t> integer_field(
    const nlohmann::json& object, const char* key, const std::string& where,
    std::int64_t most = std::numeric_limits<std::int64_t>::max());  ///< from 0
[[nodiscard]] Result<std::uint64_t> unsigned_field(const nlohmann::json& object, const char* key,
                                                   const std::string& where);
[[nodiscard]] Result<double> real_field(const nlohmann::json& object, const char* key,
                                        const std::string& where);
[[nodiscard]] Result<std::string> text_field(const nlohmann::json& object, const char* key,
                                             const std::string& where);
/// 16 hexadecimal digits.
[[nodiscard]] Result<std::uint64_t> checksum_field(const nlohmann::json& object, const char* key,
                                                   const std::string& where);
[[nodiscard]] Result<std::uint64_t> checksum_value(const nlohmann::json& value,
                                                   const std::string& where);
[[nodiscard]] Result<const nlohmann::json*> object_field(const nlohmann::json& object,
                                                         const char* key, const std::string& where);
[[nodiscard]] Result<const nlohmann::json*> list_field(const nlohmann::json& object,
                                                       const char* key, const std::string& where);

}  // namespace mfsdp
