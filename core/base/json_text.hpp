// Values as JSON text, for writers and for messages.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace mfsdp {

/// A JSON string literal, quotes included; bytes that are not UTF-8 become the replacement
/// character, so that the text is always JSON.
[[nodiscard]] std::string json_literal(std::string_view text);

/// A value as it stands in a file, on one ASCII line and short enough for an error.
[[nodiscard]] std::string json_excerpt(const nlohmann::json& value);

}  // namespace mfsdp
