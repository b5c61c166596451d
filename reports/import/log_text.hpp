// Lines, numbers and times in the text of logs. Internal to this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

constexpr double kMostSteps = 1e15;  ///< a larger number of a step, or of tokens, is none

/// The number without its fraction; none where it is negative, above `most` or no number.
[[nodiscard]] std::optional<std::int64_t> whole(std::optional<double> value, double most);

/// `count` times `unit` bytes; none where that is negative or above 1e18.
[[nodiscard]] std::optional<Bytes> bytes_of_units(std::optional<double> count, double unit);

/// Without the blanks at both ends.
[[nodiscard]] std::string_view trimmed_text(std::string_view text);

/// Without the blanks in front.
[[nodiscard]] std::string_view without_leading_blanks(std::string_view text);

/// The line without colours, which are terminal escapes "ESC [ ... letter".
[[nodiscard]] std::string without_colours(std::string_view line);

/// The number at the beginning after blanks: "10,050", "2.5E+00"; `end` becomes the rest.
[[nodiscard]] std::optional<double> leading_number(std::string_view text,
                                                   std::string_view* end = nullptr);

/// The number after `key`, if `key` is at the beginning or after a blank.
[[nodiscard]] std::optional<double> number_after(std::string_view line, std::string_view key);

/// Unix nanoseconds of the first "2026-02-24 19:46:17,508" (or with a point, or no fraction). Logs
/// do not state their time zone; UTC is assumed.
[[nodiscard]] std::optional<std::int64_t> time_in(std::string_view line);

/// Calls `use(line, number)` with each line, from 1, without its end.
void for_each_line(std::string_view text, auto use) {
  std::int64_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    use(line, ++number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace mfsdp
