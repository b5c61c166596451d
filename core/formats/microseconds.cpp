#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/formats/kineto.hpp"

namespace mfsdp::traces {
namespace {

constexpr std::int64_t kMost = std::int64_t{1} << 61;  ///< ns: differences of ends stay in 64 bits
constexpr int kScale = 3;                              ///< powers of ten from us to ns
constexpr int kMostExponent = 30;

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::optional<Nanos> parse_microseconds(std::string_view text) {
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  // The number is digits * 10^exponent.
  std::int64_t digits = 0;
  int exponent = kScale;
  bool round_up = false;
  bool exact = true;  // no digit was dropped
  bool any = false;
  bool fraction = false;
  std::size_t at = 0;
  for (; at < text.size() && (is_digit(text[at]) || text[at] == '.'); ++at) {
    if (text[at] == '.') {
      if (fraction) return std::nullopt;
      fraction = true;
      continue;
    }
    any = true;
    const int digit = text[at] - '0';
    if (exact && digits <= (kMost - digit) / 10 && (!fraction || exponent > 0)) {
      digits = digits * 10 + digit;
      exponent -= fraction ? 1 : 0;
    } else {
      if (exact) round_up = digit >= 5;
      exact = false;
      exponent += fraction ? 0 : 1;
    }
  }
  if (!any) return std::nullopt;
  if (at < text.size()) {
    // Rounding before the exponent is known would be wrong: such numbers must fit unrounded.
    if ((text[at] != 'e' && text[at] != 'E') || !exact) return std::nullopt;
    std::string_view power = text.substr(at + 1);
    if (power.starts_with('+')) power.remove_prefix(1);
    int value = 0;
    const auto [stop, error] = std::from_chars(power.data(), power.data() + power.size(), value);
    if (error != std::errc() || stop != power.data() + power.size()) return std::nullopt;
    exponent += std::clamp(value, -kMostExponent, kMostExponent);
  }
  for (; exponent > 0; --exponent) {
    if (digits > kMost / 10) return std::nullopt;
    digits *= 10;
  }
  for (; exponent < 0; ++exponent) {
    round_up = digits % 10 >= 5;
    digits /= 10;
  }
  if (round_up) ++digits;
  if (digits > kMost) return std::nullopt;
  return Nanos(negative ? -digits : digits);
}

}  // namespace mfsdp::traces
