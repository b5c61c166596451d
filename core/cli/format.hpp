// Numbers and text as people read them: units, thousands separators, cut lines. Nothing here looks
// at the locale, so the same result prints the same everywhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/quantity.hpp"
#include "core/model/model.hpp"

namespace mfsdp {

/// 1234567 -> "1,234,567".
[[nodiscard]] std::string format_count(std::int64_t value);

/// A real number with separators and that many decimals: 13421.52 -> "13,421.5". Not a number and
/// infinity print as "n/a".
[[nodiscard]] std::string format_real(double value, int decimals);

/// A rate of 0 or more to at least three digits, so that a slow one is not "0": "8,192", "42.5",
/// "3.14", "0.0125".
[[nodiscard]] std::string format_rate(double value);

/// Parameters of a model: "8.03 B", "494.03 M", "46.2 k", "512".
[[nodiscard]] std::string format_parameters(std::int64_t count);
/// " (3.35 B active)" of models with experts: without those that a token does not choose.
[[nodiscard]] std::string active_text(std::int64_t parameters, const ModelShape& model);

/// GiB (2^30 bytes) with two decimals and no unit: "47.31"; what is above 0 but rounds to 0.00
/// prints as "<0.01".
[[nodiscard]] std::string format_gib(Bytes bytes);

/// The largest binary unit that leaves at least 1: "512 B", "1.50 KiB", "208.03 MiB".
[[nodiscard]] std::string format_bytes(Bytes bytes);

/// "850 ns", "12.35 us", "872.41 ms", "1.234 s".
[[nodiscard]] std::string format_duration(Nanos nanos);

/// 0.9312 -> "93.1 %".
[[nodiscard]] std::string format_percent(double fraction);

/// Printable text (core/base/text.hpp) in single quotes: a value in an error message. What is
/// longer than any path or number that somebody means (200 characters) is cut, and its length is
/// said.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// Characters that a UTF-8 text takes on screen (one per code point).
[[nodiscard]] std::size_t display_width(std::string_view text);

/// The text itself if it is at most `width` characters, else its beginning and "...".
[[nodiscard]] std::string cut_to_width(std::string_view text, std::size_t width);

}  // namespace mfsdp
