#include "core/cli/wrap.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "core/cli/format.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kLongestLabel = 24;  // columns up to the second field of a line

/// Text that stays on one line, and the blanks before it.
struct Word {
  std::size_t gap = 0;
  std::string_view text;
};

/// Width of the text in columns. Colour escapes ("ESC [ ... m") count 0.
std::size_t shown_width(std::string_view text) {
  std::size_t width = 0;
  while (!text.empty()) {
    const std::size_t escape = std::min(text.find("\x1b["), text.size());
    width += display_width(text.substr(0, escape));
    text.remove_prefix(escape);
    const std::size_t end = text.find('m');
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return width;
}

bool is_number(std::string_view word) {
  const std::size_t first = word.find_first_not_of("(+-<");
  return first != std::string_view::npos && word[first] >= '0' && word[first] <= '9';
}

bool is_unit(std::string_view word) {
  constexpr std::array<std::string_view, 22> units{
      "MB",  "GB",  "TB",  "%",  "B",  "k",  "M", "T",    "KiB",     "MiB",    "GiB",
      "TiB", "PiB", "EiB", "ns", "us", "ms", "s", "GB/s", "TFLOP/s", "Gbit/s", "us/hop"};
  const std::size_t end = word.find_last_not_of(".,;:)");
  return end != std::string_view::npos &&
         std::ranges::find(units, word.substr(0, end + 1)) != units.end();
}

std::vector<Word> words_of(std::string_view line) {
  std::vector<Word> words;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t begin = line.find_first_not_of(' ', at);
    if (begin == std::string_view::npos) break;
    const std::size_t end = std::min(line.find(' ', begin), line.size());
    const std::string_view text = line.substr(begin, end - begin);
    const bool after_one_blank = begin == at + 1 && !words.empty();
    if (after_one_blank && is_unit(text) && is_number(words.back().text)) {
      // Both lie in the line, one blank between them.
      words.back().text = {words.back().text.data(), words.back().text.size() + 1 + text.size()};
    } else {
      words.push_back({.gap = begin - at, .text = text});
    }
    at = end;
  }
  return words;
}

/// The column at which the continuation lines of a line begin.
std::size_t hang_of(std::string_view line, std::size_t width) {
  const std::vector<Word> words = words_of(line);
  if (words.empty()) return 0;
  const std::size_t deeper = words.front().gap + 2;
  std::size_t column = 0;
  for (std::size_t i = 0; i < words.size() && column <= kLongestLabel; ++i) {
    const bool second_field = i > 0 && words[i].gap > 1;
    column += words[i].gap;
    if (second_field && column <= kLongestLabel && 2 * column <= width) return column;
    column += shown_width(words[i].text);
  }
  return std::min(deeper, width / 2);
}

}  // namespace

std::string wrap_line(std::string_view line, std::size_t width, std::size_t hang) {
  std::string out;
  std::size_t column = 0;
  bool begun = false;  // this piece has a word
  for (const Word& word : words_of(line)) {
    const std::size_t columns = shown_width(word.text);
    const bool fits = column + word.gap + columns <= width;
    const bool gains = column + word.gap > hang;  // a new piece would begin further left
    if (begun && !fits && gains) {
      out += "\n" + std::string(hang, ' ');
      column = hang;
    } else {
      out.append(word.gap, ' ');
      column += word.gap;
    }
    out += word.text;
    column += columns;
    begun = true;
  }
  return out;
}

std::size_t longest_word(std::string_view line) {
  std::size_t longest = 0;
  for (const Word& word : words_of(line)) longest = std::max(longest, shown_width(word.text));
  return longest;
}

std::string wrap_text(std::string_view text, const TextStyle& style) {
  if (!style.width) return std::string(text);
  std::string out;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    out += shown_width(line) <= *style.width
               ? std::string(line)
               : wrap_line(line, *style.width, hang_of(line, *style.width));
    if (end < text.size()) out += '\n';
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

}  // namespace mfsdp
