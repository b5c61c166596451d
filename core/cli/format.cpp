#include "core/cli/format.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/text.hpp"
#include "core/model/model_shape.hpp"

namespace mfsdp {
namespace {

/// Inserts "," between groups of three digits.
std::string with_separators(std::string_view digits) {
  std::string out;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

}  // namespace

std::string format_count(std::int64_t value) {
  const std::string digits = fmt::format("{}", value);
  if (value < 0) return "-" + with_separators(std::string_view(digits).substr(1));
  return with_separators(digits);
}

std::string format_real(double value, int decimals) {
  if (!std::isfinite(value)) return "n/a";
  const std::string digits = fmt::format("{:.{}f}", std::fabs(value), decimals);
  const std::size_t point = std::min(digits.find('.'), digits.size());
  const bool negative = value < 0 && digits.find_first_not_of("0.") != std::string::npos;
  return (negative ? "-" : "") + with_separators(std::string_view(digits).substr(0, point)) +
         digits.substr(point);
}

std::string format_rate(double value) {
  // The limits are the values at which one decimal less still prints three digits after rounding.
  if (!std::isfinite(value) || value == 0 || value >= 99.95) return format_real(value, 0);
  if (value >= 9.995) return format_real(value, 1);
  if (value >= 0.9995) return format_real(value, 2);
  return fmt::format("{:.3g}", value);
}

std::string active_text(std::int64_t parameters, const ModelShape& model) {
  if (model.experts == 0) return {};
  return fmt::format(" ({} active)", format_parameters(parameters - unchosen_elements(model)));
}

std::string format_parameters(std::int64_t count) {
  const auto value = static_cast<double>(count);
  // The limits are the values at which two decimals round up to 1000 of the smaller unit.
  if (count >= 999'995'000'000) return format_real(value / 1e12, 2) + " T";
  if (count >= 999'995'000) return format_real(value / 1e9, 2) + " B";
  if (count >= 999'950) return format_real(value / 1e6, 2) + " M";
  if (count >= 1000) return format_real(value / 1e3, 1) + " k";
  return format_count(count);
}

std::string format_gib(Bytes bytes) {
  constexpr double gib = 1024.0 * 1024.0 * 1024.0;
  const auto value = static_cast<double>(bytes.value) / gib;
  if (value > 0 && value < 0.005) return "<0.01";
  return format_real(value, 2);
}

std::string format_bytes(Bytes bytes) {
  constexpr std::array<std::string_view, 7> units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes.value);
  std::size_t unit = 0;
  while (std::fabs(value) >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return format_real(value, unit == 0 ? 0 : 2) + " " + std::string(units[unit]);
}

std::string format_duration(Nanos nanos) {
  const std::int64_t magnitude = nanos.value < 0 ? -(nanos.value + 1) : nanos.value;
  const auto value = static_cast<double>(nanos.value);
  if (magnitude < 1000) return format_count(nanos.value) + " ns";
  if (magnitude < 999'995) return format_real(value / 1e3, 2) + " us";
  if (magnitude < 999'995'000) return format_real(value / 1e6, 2) + " ms";
  return format_real(value / 1e9, 3) + " s";
}

std::string format_percent(double fraction) {
  return std::isfinite(fraction) ? format_real(fraction * 100, 1) + " %" : "n/a";
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kMost = 200;
  const std::string shown = printable(text);
  if (display_width(shown) <= kMost) return "'" + shown + "'";
  return fmt::format("'{}' ({} characters)", cut_to_width(shown, kMost),
                     format_count(static_cast<std::int64_t>(display_width(text))));
}

std::size_t display_width(std::string_view text) {
  std::size_t width = 0;
  for (const char c : text) width += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return width;
}

std::string cut_to_width(std::string_view text, std::size_t width) {
  if (display_width(text) <= width) return std::string(text);
  const std::string_view dots = std::string_view("...").substr(0, width);
  std::size_t kept = 0;
  std::size_t end = 0;
  for (; end < text.size(); ++end) {
    const bool starts_character = (static_cast<unsigned char>(text[end]) & 0xC0) != 0x80;
    if (starts_character && kept++ == width - dots.size()) break;
  }
  return std::string(text.substr(0, end)) + std::string(dots);
}

}  // namespace mfsdp
