#include "core/base/amount.hpp"

#include <algorithm>
#include <limits>
#include <string>

#include "core/base/quantity.hpp"
#include "core/base/rational.hpp"

namespace mfsdp {
namespace {

/// An amount as a fraction, den > 0.
struct Fraction {
  Int128 num = 0;
  Int128 den = 1;
};

std::optional<Fraction> parse(std::string_view text, std::span<const UnitWord> words) {
  const std::size_t end = text.find_first_not_of("0123456789.");
  if (end == 0 || end == std::string_view::npos) return std::nullopt;
  std::string_view word = text.substr(end);
  if (word.starts_with(' ')) word.remove_prefix(1);
  const auto found = std::ranges::find(words, word, &UnitWord::word);
  const auto number = parse_rational(text.substr(0, end), "");
  if (found == words.end() || !number) return std::nullopt;
  return Fraction{.num = Int128{number->num} * found->size, .den = number->den};
}

std::optional<std::int64_t> narrowed(Int128 value) {
  if (value > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

}  // namespace

std::optional<std::int64_t> parse_amount(std::string_view text, std::span<const UnitWord> words) {
  const auto amount = parse(text, words);
  if (!amount || amount->num % amount->den != 0) return std::nullopt;
  return narrowed(amount->num / amount->den);
}

std::optional<std::int64_t> parse_amount_up(std::string_view text,
                                            std::span<const UnitWord> words) {
  const auto amount = parse(text, words);
  if (!amount) return std::nullopt;
  return narrowed((amount->num + amount->den - 1) / amount->den);
}

std::optional<std::int64_t> parse_count(std::string_view text) {
  std::string upper(text);
  for (char& c : upper)
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  if (const auto words = parse_amount(upper, kCountWords)) return words;
  const auto number = parse_rational(text, "");
  if (!number || number->num < 0 || number->den != 1) return std::nullopt;
  return number->num;
}

}  // namespace mfsdp
