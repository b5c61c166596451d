// Strict JSON text to a document.
#pragma once

#include <cstddef>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// Parses one JSON value. Rejects duplicate keys and nesting deeper than 64; errors name the file,
/// line and column: "config.json:3:14: expected ...". A UTF-8 byte order mark is skipped.
/// `first_line` is the text's place in a file that holds more than one value, as JSONL does.
[[nodiscard]] Result<nlohmann::json> parse_json(std::string_view text, const std::string& where,
                                                std::size_t first_line = 1);

/// As parse_json(), but NaN, Infinity and -Infinity are floats. Python's json module writes them,
/// though JSON has no such numbers. They are errors as keys of objects.
[[nodiscard]] Result<nlohmann::json> parse_python_json(std::string_view text,
                                                       const std::string& where);

}  // namespace mfsdp
