#include "core/base/amount.hpp"

#include <algorithm>
#include <limits>

#include "core/base/quantity.hpp"
#include "core/base/rational.hpp"

namespace mfsdp {

std::optional<std::int64_t> parse_amount(std::string_view text, std::span<const UnitWord> words) {
  const std::size_t end = text.find_first_not_of("0123456789.");
  if (end == 0 || end == std::string_view::npos) return std::nullopt;
  std::string_view word = text.substr(end);
  if (word.starts_with(' ')) word.remove_prefix(1);
  const auto found = std::ranges::find(words, word, &UnitWord::word);
  const auto number = parse_rational(text.substr(0, end), "");
  if (found == words.end() || !number) return std::nullopt;
  const Int128 whole = Int128{number->num} * found->size;
  if (whole % number->den != 0) return std::nullopt;
  const Int128 value = whole / number->den;
  if (value > std::numeric_limits<std::int64_t>::max()) return std::nullopt;
  return static_cast<std::int64_t>(value);
}

}  // namespace mfsdp
