// Numbers and text for readers: units, thousands separators, shortened lines. The locale has no
// effect, so a result prints the same on every machine.
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

/// A real number with separators and `decimals` decimals: 13421.52 -> "13,421.5". NaN and infinity
/// print as "n/a".
[[nodiscard]] std::string format_real(double value, int decimals);

/// A rate of at least 0, to at least three significant digits, so that a low rate does not print as
/// "0": "8,192", "42.5", "3.14", "0.0125".
[[nodiscard]] std::string format_rate(double value);

/// Parameters of a model: "8.03 B", "494.03 M", "46.2 k", "512".
[[nodiscard]] std::string format_parameters(std::int64_t count);
/// " (3.35 B active)" for models with experts: the parameters without those of unused experts.
[[nodiscard]] std::string active_text(std::int64_t parameters, const ModelShape& model);

/// GiB (2^30 bytes) with two decimals and no unit: "47.31". A value above 0 that rounds to 0.00
/// prints as "<0.01".
[[nodiscard]] std::string format_gib(Bytes bytes);

/// The largest binary unit that leaves at least 1: "512 B", "1.50 KiB", "208.03 MiB".
[[nodiscard]] std::string format_bytes(Bytes bytes);

/// "850 ns", "12.35 us", "872.41 ms", "1.234 s".
[[nodiscard]] std::string format_duration(Nanos nanos);

/// 0.9312 -> "93.1 %".
[[nodiscard]] std::string format_percent(double fraction);

/// Printable text (core/base/text.hpp) in single quotes: a value in an error message. A text of
/// more than 200 characters is longer than a plausible path or number; it is cut, and its length
/// follows.
[[nodiscard]] std::string in_quotes(std::string_view text);

/// Characters that a UTF-8 text takes on screen (one per code point).
[[nodiscard]] std::size_t display_width(std::string_view text);

/// The text itself if it is at most `width` characters, else its beginning and "...".
[[nodiscard]] std::string cut_to_width(std::string_view text, std::size_t width);

}  // namespace mfsdp
