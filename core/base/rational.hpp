// Exact fractions for the few real numbers of a plan (clip, epsilon, RoPE base), so that a plan
// reads back as it was written and hashes alike on every machine.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/error.hpp"

namespace mfsdp {

/// num / den in lowest terms, den > 0.
struct Rational {
  std::int64_t num = 0;
  std::int64_t den = 1;

  friend bool operator==(const Rational&, const Rational&) = default;
  [[nodiscard]] double value() const { return static_cast<double>(num) / static_cast<double>(den); }
};

/// num / den brought to lowest terms; an error when den is not positive or num is -2^63.
[[nodiscard]] Result<Rational> make_rational(std::int64_t num, std::int64_t den);

/// Reads a decimal such as "1", "0.5" or "1e-05" exactly. Errors on anything else and on values
/// whose numerator or denominator leaves 63 bits. `where` names the field in the error.
[[nodiscard]] Result<Rational> parse_rational(std::string_view text, std::string_view where);

/// The rational equal to the shortest decimal form of `value` (1e-05 becomes 1/100000).
[[nodiscard]] Result<Rational> rational_from_double(double value, std::string_view where);

/// The double whose shortest decimal form equals the fraction exactly, if there is one.
[[nodiscard]] std::optional<double> exact_double(const Rational& value);

}  // namespace mfsdp
