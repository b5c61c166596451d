#include "gpu_backend/train/text/pattern_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/text.hpp"

namespace mfsdp {
namespace {

/// White_Space of Unicode, for the inside of a class: U+0009 to U+000D, U+0085 and the category Z.
constexpr std::string_view kSpaces = R"(\t-\r\x{85}\p{Z})";

constexpr std::array<std::string_view, 37> kCategories{
    "C",  "Cc", "Cf", "Cn", "Co", "Cs", "L",  "Ll", "Lm", "Lo", "Lt", "Lu", "M",
    "Mc", "Me", "Mn", "N",  "Nd", "Nl", "No", "P",  "Pc", "Pd", "Pe", "Pf", "Pi",
    "Po", "Ps", "S",  "Sc", "Sk", "Sm", "So", "Z",  "Zl", "Zp", "Zs"};

constexpr std::array<std::string_view, 6> kGroups{"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!"};

class PatternReader {
 public:
  PatternReader(std::string_view pattern, const std::string& where)
      : rest_(pattern), pattern_(pattern), where_(where) {}

  Result<std::string> read() {
    while (!rest_.empty()) {
      const char c = rest_.front();
      if (c == '\\') {
        MFSDP_TRY(escape(false));
      } else if (c == '[') {
        MFSDP_TRY(character_class());
      } else if (c == '(') {
        MFSDP_TRY(group());
      } else if (const std::string_view other = other_meaning(); !other.empty()) {
        return unknown(other);
      } else {
        take(1);
      }
    }
    return std::move(out_);
  }

 private:
  void take(std::size_t count) {
    out_ += rest_.substr(0, count);
    rest_.remove_prefix(count);
  }

  /// The next part of the pattern, if Oniguruma and PCRE2 may read it in different ways.
  [[nodiscard]] std::string_view other_meaning() const {
    for (const std::string_view text : {".", "^", "$", "}+", "}?", "{,"})
      if (rest_.starts_with(text)) return text;
    return {};
  }

  [[nodiscard]] tl::unexpected<Error> unknown(std::string_view what) const {
    return fail(where_, fmt::format("\"{}\" of the pattern \"{}\" is not supported",
                                    printable(what), printable(pattern_)));
  }

  Result<void> escape(bool in_class) {
    if (rest_.size() < 2) return unknown("\\");
    const char c = rest_[1];
    if (c == 's') {
      rest_.remove_prefix(2);
      out_ += in_class ? std::string(kSpaces) : fmt::format("[{}]", kSpaces);
      return {};
    }
    if (c == 'S' && !in_class) {
      rest_.remove_prefix(2);
      out_ += fmt::format("[^{}]", kSpaces);
      return {};
    }
    if (c == 'p' || c == 'P') return category();
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    const bool is_digit = c >= '0' && c <= '9';
    const bool is_ascii = static_cast<unsigned char>(c) < 0x80;
    if (std::string_view("rntfv").find(c) == std::string_view::npos &&
        (is_letter || is_digit || !is_ascii))
      return unknown(rest_.substr(0, 2));
    if (c == 'v') {  // vertical tab for Oniguruma, any line's end for PCRE2
      rest_.remove_prefix(2);
      out_ += R"(\x0B)";
      return {};
    }
    take(2);
    return {};
  }

  Result<void> category() {
    const std::size_t end = rest_.find('}');
    const std::string_view whole = rest_.substr(0, end == std::string_view::npos ? end : end + 1);
    if (end == std::string_view::npos || whole.size() < 5 || whole[2] != '{') return unknown(whole);
    std::string_view name = whole.substr(3, whole.size() - 4);
    if (name.starts_with('^')) name.remove_prefix(1);
    if (std::ranges::find(kCategories, name) == kCategories.end()) return unknown(whole);
    take(whole.size());
    return {};
  }

  Result<void> character_class() {
    take(rest_.starts_with("[^") ? 2 : 1);
    if (rest_.starts_with(']')) return unknown("[]");
    while (!rest_.empty() && rest_.front() != ']') {
      if (rest_.front() == '[') return unknown("[ in a class");
      if (rest_.starts_with("&&")) return unknown("&&");
      if (rest_.front() == '\\') {
        MFSDP_TRY(escape(true));
      } else {
        take(1);
      }
    }
    if (rest_.empty()) return unknown("[");
    take(1);
    return {};
  }

  Result<void> group() {
    if (!rest_.starts_with("(?") && !rest_.starts_with("(*")) {
      take(1);
      return {};
    }
    for (const std::string_view known : kGroups)
      if (rest_.starts_with(known)) {
        take(known.size());
        return {};
      }
    return unknown(rest_.substr(0, 3));
  }

  std::string_view rest_;
  std::string_view pattern_;
  const std::string& where_;
  std::string out_;
};

}  // namespace

Result<std::string> pcre2_pattern(std::string_view pattern, const std::string& where) {
  return PatternReader(pattern, where).read();
}

}  // namespace mfsdp
