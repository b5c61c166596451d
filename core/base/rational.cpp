#include "core/base/rational.hpp"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "core/base/excerpt.hpp"
#include "core/base/quantity.hpp"

namespace mfsdp {
namespace {

constexpr int kLargestExponent = 18;  // 10^18 < 2^63

bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Cursor over a decimal number. Each step returns false when the text is not one.
struct DecimalReader {
  std::string_view text;
  std::size_t at = 0;
  std::int64_t mantissa = 0;
  int exponent = 0;
  bool negative = false;

  bool sign() {
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) return text[at++] == '-';
    return false;
  }

  std::size_t digits(bool fraction) {
    const std::size_t begin = at;
    for (; at < text.size() && is_digit(text[at]); ++at) {
      mantissa = checked_add(checked_mul(mantissa, 10), text[at] - '0');
      if (fraction) --exponent;
    }
    return at - begin;
  }

  bool read() {
    negative = sign();
    std::size_t seen = digits(false);
    if (at < text.size() && text[at] == '.') {
      ++at;
      seen += digits(true);
    }
    if (seen == 0) return false;
    if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
      ++at;
      const bool down = sign();
      const std::size_t begin = at;
      int power = 0;
      for (; at < text.size() && is_digit(text[at]) && power < 1000; ++at)
        power = power * 10 + (text[at] - '0');
      if (at == begin) return false;
      exponent += down ? -power : power;
    }
    return at == text.size();
  }
};

std::int64_t power_of_ten(int exponent) {
  std::int64_t power = 1;
  for (int i = 0; i < exponent; ++i) power = checked_mul(power, 10);
  return power;
}

}  // namespace

Result<Rational> make_rational(std::int64_t num, std::int64_t den) {
  if (den <= 0) return fail("rational", fmt::format("denominator must be positive, got {}", den));
  if (num == std::numeric_limits<std::int64_t>::min())
    return fail("rational", fmt::format("numerator out of range, got {}", num));
  const std::int64_t divisor = std::gcd(num, den);
  return Rational{num / divisor, den / divisor};
}

Result<Rational> parse_rational(std::string_view text, std::string_view where) {
  const auto wrong = [&](std::string_view why) {
    return fail(std::string(where), fmt::format("{}, got '{}'", why, excerpt(text)));
  };
  try {
    DecimalReader reader{.text = text};
    if (!reader.read()) return wrong("expected a decimal number");
    while (reader.mantissa != 0 && reader.mantissa % 10 == 0 && reader.exponent < 0) {
      reader.mantissa /= 10;
      ++reader.exponent;
    }
    if (reader.mantissa == 0) return Rational{};
    if (std::abs(reader.exponent) > kLargestExponent) return wrong("number out of range");
    if (reader.negative) reader.mantissa = -reader.mantissa;
    return reader.exponent >= 0
               ? make_rational(checked_mul(reader.mantissa, power_of_ten(reader.exponent)), 1)
               : make_rational(reader.mantissa, power_of_ten(-reader.exponent));
  } catch (const OverflowError&) {
    return wrong("number out of range");
  }
}

Result<Rational> rational_from_double(double value, std::string_view where) {
  if (!std::isfinite(value)) return fail(std::string(where), "expected a finite number");
  return parse_rational(fmt::format("{}", value), where);
}

std::optional<double> exact_double(const Rational& value) {
  const auto back = rational_from_double(value.value(), "");
  return back && *back == value ? std::optional(value.value()) : std::nullopt;
}

}  // namespace mfsdp
