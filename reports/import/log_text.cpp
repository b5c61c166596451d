#include "reports/import/log_text.hpp"

#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <system_error>

namespace mfsdp {

std::optional<std::int64_t> whole(std::optional<double> value, double most) {
  if (!value || !(*value >= 0) || *value > most) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

std::optional<Bytes> bytes_of_units(std::optional<double> count, double unit) {
  constexpr double most = 1e18;
  if (!count || !(*count >= 0) || *count * unit > most) return std::nullopt;
  return Bytes(std::llround(*count * unit));
}

std::string_view trimmed_text(std::string_view text) {
  text = without_leading_blanks(text);
  const std::size_t last = text.find_last_not_of(" \t");
  return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
}

std::string_view without_leading_blanks(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of(" \t"), text.size()));
}

std::string without_colours(std::string_view line) {
  std::string text;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\x1b' || i + 1 >= line.size() || line[i + 1] != '[') {
      text += line[i];
      continue;
    }
    i += 2;
    while (i < line.size() && (line[i] < '@' || line[i] > '~')) ++i;
  }
  return text;
}

std::optional<double> leading_number(std::string_view text, std::string_view* end) {
  text = without_leading_blanks(text);
  std::array<char, 64> digits{};
  std::size_t count = 0;
  std::size_t used = 0;
  for (; used < text.size() && count < digits.size(); ++used) {
    const char c = text[used];
    const bool separates =
        c == ',' && used + 1 < text.size() && text[used + 1] >= '0' && text[used + 1] <= '9';
    if (separates) continue;
    if (std::string_view("0123456789+-.eEnaifNAI").find(c) == std::string_view::npos) break;
    digits.at(count++) = c;
  }
  double value = 0;
  const auto [stop, code] = std::from_chars(digits.data(), digits.data() + count, value);
  if (code != std::errc() || stop == digits.data()) return std::nullopt;
  if (end != nullptr) *end = text.substr(used);
  return value;
}

std::optional<double> number_after(std::string_view line, std::string_view key) {
  for (std::size_t at = line.find(key); at != std::string_view::npos; at = line.find(key, at + 1))
    if (at == 0 || line[at - 1] == ' ') return leading_number(line.substr(at + key.size()));
  return std::nullopt;
}

namespace {

/// The digits of "2026-02-24 19:46:17" at their places, the others as they stand.
bool has_form_of_time(std::string_view text) {
  constexpr std::string_view form = "0000-00-00 00:00:00";
  if (text.size() < form.size()) return false;
  for (std::size_t i = 0; i < form.size(); ++i) {
    const bool digit = text[i] >= '0' && text[i] <= '9';
    const bool fits = form[i] == '0' ? digit : text[i] == form[i];
    if (!fits) return false;
  }
  return true;
}

int digits_at(std::string_view text, std::size_t at, std::size_t count) {
  int value = 0;
  for (std::size_t i = at; i < at + count; ++i) value = value * 10 + (text[i] - '0');
  return value;
}

}  // namespace

std::optional<std::int64_t> time_in(std::string_view line) {
  namespace chrono = std::chrono;
  for (std::size_t dash = line.find('-'); dash != std::string_view::npos;
       dash = line.find('-', dash + 1)) {
    if (dash < 4) continue;
    const std::string_view text = line.substr(dash - 4);
    if (!has_form_of_time(text)) continue;
    const chrono::year_month_day date{chrono::year(digits_at(text, 0, 4)),
                                      chrono::month(static_cast<unsigned>(digits_at(text, 5, 2))),
                                      chrono::day(static_cast<unsigned>(digits_at(text, 8, 2)))};
    if (!date.ok() || date.year() < chrono::year(1970) || date.year() > chrono::year(2200))
      continue;
    const auto days = chrono::sys_days(date).time_since_epoch();
    std::int64_t nanos = (chrono::duration_cast<chrono::seconds>(days).count() +
                          std::int64_t{3600} * digits_at(text, 11, 2) +
                          std::int64_t{60} * digits_at(text, 14, 2) + digits_at(text, 17, 2)) *
                         1'000'000'000;
    std::int64_t unit = 100'000'000;
    if (text.size() > 20 && (text[19] == ',' || text[19] == '.'))
      for (std::size_t i = 20; i < text.size() && text[i] >= '0' && text[i] <= '9' && unit > 0;
           ++i, unit /= 10)
        nanos += (text[i] - '0') * unit;
    return nanos;
  }
  return std::nullopt;
}

}  // namespace mfsdp
