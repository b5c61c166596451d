// JSON as Python's json.dumps writes it: NaN, Infinity and -Infinity stand there as bare words,
// which are no JSON. Internal to this folder.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

namespace mfsdp {

/// The value of the text, with those words as strings; discarded where the text is no JSON.
[[nodiscard]] nlohmann::json parse_python_json(std::string_view text);

/// A number, or one that is not finite by its word; none of other values.
[[nodiscard]] std::optional<double> python_number(const nlohmann::json& value);

}  // namespace mfsdp
