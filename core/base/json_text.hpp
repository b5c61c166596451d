// Values as JSON text, for writers and for messages.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace mfsdp {

/// A JSON string literal, quotes included; bytes that are not UTF-8 become the replacement
/// character, so that the text is always JSON.
[[nodiscard]] std::string json_literal(std::string_view text);

/// A value as JSON on one ASCII line, shortened for use in an error.
[[nodiscard]] std::string json_excerpt(const nlohmann::json& value);

}  // namespace mfsdp
