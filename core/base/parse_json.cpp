#include "core/base/parse_json.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/base/byte_order_mark.hpp"
#include "core/base/excerpt.hpp"
#include "core/base/file_kind.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kMaximumDepth = 64;

std::string place(const std::string& where, std::size_t first_line, std::string_view text,
                  std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte, text.size()));
  const std::size_t line =
      first_line + static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n'));
  const std::size_t newline = before.rfind('\n');
  const std::size_t column = newline == std::string_view::npos ? byte : byte - newline - 1;
  return fmt::format("{}:{}:{}", where, line, column + 1);
}

/// The parser quotes the whole token that it was reading, which may be megabytes. Its end shows the
/// mistake.
std::string shortened(std::string complaint) {
  constexpr std::string_view kQuote = "last read: '";
  constexpr std::size_t kMost = 80;
  const std::size_t quote = complaint.find(kQuote);
  if (quote == std::string::npos || complaint.size() < quote + kQuote.size() + kMost)
    return complaint;
  const std::size_t begin = quote + kQuote.size();
  std::size_t end = complaint.size() - kMost / 2;
  while ((static_cast<unsigned char>(complaint[end]) & 0xC0U) == 0x80U) --end;  // whole characters
  return complaint.replace(begin, end - begin, "...");
}

/// "[json.exception.parse_error.101] parse error at line 1, column 2: syntax error ..." becomes
/// "syntax error ...".
std::string complaint_of(const nlohmann::detail::exception& error, const std::string& token) {
  constexpr int kNumberOverflow = 406;
  constexpr std::size_t kMostToken = 40;
  if (error.id == kNumberOverflow)
    return fmt::format("expected a number up to 1.8e308, got {}",
                       token.size() <= kMostToken ? token : token.substr(0, kMostToken) + "...");
  std::string complaint = error.what();
  if (const auto colon = complaint.find(": "); colon != std::string::npos)
    complaint.erase(0, colon + 2);
  return shortened(std::move(complaint));
}

/// Iterates over text and counts the bytes that the parser has taken, which its events do not
/// state.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, std::size_t* count) : at_(at), count_(count) {}

  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    ++at_;
    ++*count_;
    return *this;
  }
  CountingIterator operator++(int) {
    const CountingIterator before = *this;
    ++*this;
    return before;
  }
  bool operator==(const CountingIterator& other) const { return at_ == other.at_; }
  bool operator!=(const CountingIterator& other) const { return at_ != other.at_; }

 private:
  const char* at_;
  std::size_t* count_;
};

/// The numbers that JSON does not have (NaN, Infinity): where each ends in the text, and its value.
using NumbersByEnd = std::map<std::size_t, double>;

/// The word of a number that JSON does not have, and its value.
struct WordNumber {
  std::string_view word;
  double value;
};
constexpr std::array kWordNumbers{
    WordNumber{"NaN", std::numeric_limits<double>::quiet_NaN()},
    WordNumber{"Infinity", std::numeric_limits<double>::infinity()},
};

/// Replaces those words, outside of strings, by strings of equal length, so that a JSON parser
/// accepts them and the places in its errors stay right.
NumbersByEnd quote_word_numbers(std::string& text) {
  NumbersByEnd numbers;
  bool in_text = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (in_text && text[at] == '\\') {
      ++at;
    } else if (text[at] == '"') {
      in_text = !in_text;
    } else if (!in_text) {
      const std::string_view rest = std::string_view(text).substr(at);
      for (const auto& [word, value] : kWordNumbers) {
        if (!rest.starts_with(word)) continue;
        const std::size_t end = at + word.size();
        const bool negative = at > 0 && text[at - 1] == '-';
        if (negative) text[at - 1] = ' ';
        text[at] = text[end - 1] = '"';
        numbers[end] = negative ? -value : value;
        at = end - 1;
        break;
      }
    }
  }
  return numbers;
}

/// Builds the document from parser events. Refuses duplicate keys and deep nesting, which JSON
/// allows.
class StrictBuilder {
 public:
  StrictBuilder(nlohmann::json& root, const std::size_t& read, const NumbersByEnd& numbers)
      : dom_(root, false), read_(read), numbers_(numbers) {}

  bool null() { return dom_.null(); }
  bool boolean(bool v) { return dom_.boolean(v); }
  bool number_integer(std::int64_t v) { return dom_.number_integer(v); }
  bool number_unsigned(std::uint64_t v) { return dom_.number_unsigned(v); }
  bool number_float(double v, const std::string& s) { return dom_.number_float(v, s); }
  bool string(std::string& v) {
    const auto number = numbers_.find(read_);
    return number == numbers_.end() ? dom_.string(v) : dom_.number_float(number->second, v);
  }
  bool binary(nlohmann::json::binary_t& v) { return dom_.binary(v); }

  bool start_object(std::size_t n) { return open() && dom_.start_object(n); }
  bool start_array(std::size_t n) { return open() && dom_.start_array(n); }
  bool end_object() { return close() && dom_.end_object(); }
  bool end_array() { return close() && dom_.end_array(); }

  bool key(std::string& name) {
    if (numbers_.contains(read_)) return refuse("expected a key in quotes, got a number");
    if (!keys_.back().insert(name).second) {
      return refuse(fmt::format("key \"{}\" appears twice in one object", excerpt(name)));
    }
    return dom_.key(name);
  }

  bool parse_error(std::size_t at, const std::string& token,
                   const nlohmann::detail::exception& error) {
    at_ = at;
    complaint_ = complaint_of(error, token);
    return false;
  }

  [[nodiscard]] const std::string& complaint() const { return complaint_; }
  [[nodiscard]] std::size_t at() const { return at_; }

 private:
  bool open() {
    keys_.emplace_back();
    if (keys_.size() <= kMaximumDepth) return true;
    return refuse(fmt::format("nested deeper than {} levels", kMaximumDepth));
  }
  bool refuse(std::string complaint) {
    complaint_ = std::move(complaint);
    at_ = read_;
    return false;
  }
  bool close() {
    keys_.pop_back();
    return true;
  }

  nlohmann::detail::json_sax_dom_parser<nlohmann::json> dom_;
  const std::size_t& read_;  ///< bytes that the parser has taken
  const NumbersByEnd& numbers_;
  std::vector<std::unordered_set<std::string>> keys_;
  std::string complaint_;
  std::size_t at_ = 0;
};

Result<nlohmann::json> parse(std::string_view text, const std::string& where,
                             std::size_t first_line, const NumbersByEnd& numbers) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos)
    return fail(where, "expected JSON, got an empty file");
  nlohmann::json root;
  std::size_t read = 0;
  StrictBuilder builder(root, read, numbers);
  const CountingIterator begin(text.data(), &read);
  const CountingIterator end(text.data() + text.size(), &read);
  if (nlohmann::json::sax_parse(begin, end, &builder)) return root;
  if (auto other = expected_other_kind(text, FileKind::json, "JSON"))
    return fail(where, std::move(*other));
  const std::size_t at = builder.at() > 0 ? builder.at() - 1 : 0;
  return fail(place(where, first_line, text, at), builder.complaint());
}

}  // namespace

Result<nlohmann::json> parse_json(std::string_view text, const std::string& where,
                                  std::size_t first_line) {
  return parse(without_byte_order_mark(text), where, first_line, {});
}

Result<nlohmann::json> parse_python_json(std::string_view text, const std::string& where) {
  std::string quoted(without_byte_order_mark(text));
  const NumbersByEnd numbers = quote_word_numbers(quoted);
  return parse(quoted, where, 1, numbers);
}

}  // namespace mfsdp
