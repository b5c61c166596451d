// A JSON array of arrays of integers, as the columns of `timelines` hold their rows. SQLite reads
// an array anew for each of its elements: a step of 20,000 ops would take a tenth of a second.
// Internal to this folder.
#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <system_error>

namespace mfsdp {

/// Reads one list after the other. `text` must outlive it.
class NumberLists {
 public:
  explicit NumberLists(std::string_view text) : text_(text), broken_(!takes('[')) {}

  /// The next list, which has as many numbers; false where there is none, or no such.
  template <std::size_t count>
  [[nodiscard]] bool next(std::array<std::int64_t, count>& values) {
    if (broken_ || at_ >= text_.size() || text_[at_] == ']') return false;
    broken_ = !(is_first_ || takes(',')) || !takes('[');
    is_first_ = false;
    for (std::size_t i = 0; i < count && !broken_; ++i)
      broken_ = (i > 0 && !takes(',')) || !take(values.at(i));
    broken_ = broken_ || !takes(']');
    return !broken_;
  }

  /// Whether the text ended where its array does.
  [[nodiscard]] bool is_whole() { return !broken_ && takes(']') && at_ == text_.size(); }
  /// Where reading has come to, in bytes.
  [[nodiscard]] std::size_t at() const { return at_; }

 private:
  [[nodiscard]] bool takes(char c) {
    const bool is_there = at_ < text_.size() && text_[at_] == c;
    at_ += is_there ? 1 : 0;
    return is_there;
  }
  [[nodiscard]] bool take(std::int64_t& value) {
    const std::string_view rest = text_.substr(at_);
    const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    at_ += static_cast<std::size_t>(end - rest.data());
    return error == std::errc();
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool is_first_ = true;
  bool broken_ = false;
};

}  // namespace mfsdp
