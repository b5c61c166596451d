#include "verify/traces/shell_words.hpp"

#include <utility>

namespace mfsdp::traces {
namespace {

bool separates(char c) {
  return std::string_view(" \t\r\n();&|").find(c) != std::string_view::npos;
}

class Splitter {
 public:
  explicit Splitter(std::string_view text) : text_(text) {}

  std::vector<std::string> split() {
    while (at_ < text_.size()) step();
    end_word();
    return std::move(words_);
  }

 private:
  void step() {
    const char c = text_[at_];
    if (c == '\\') {
      const bool line_ends = at_ + 1 < text_.size() && text_[at_ + 1] == '\n';
      if (!line_ends && at_ + 1 < text_.size()) add(text_[at_ + 1]);
      at_ += 2;
    } else if (c == '\'' || c == '"') {
      quoted(c);
    } else if (c == '#' && !in_word_) {
      at_ = std::min(text_.find('\n', at_), text_.size());
    } else if (separates(c)) {
      end_word();
      ++at_;
    } else {
      add(c);
      ++at_;
    }
  }

  void quoted(char quote) {
    in_word_ = true;
    for (++at_; at_ < text_.size() && text_[at_] != quote; ++at_) {
      if (quote == '"' && text_[at_] == '\\' && at_ + 1 < text_.size()) ++at_;
      add(text_[at_]);
    }
    ++at_;
  }

  void add(char c) {
    in_word_ = true;
    word_ += c;
  }
  void end_word() {
    if (std::exchange(in_word_, false)) words_.push_back(std::exchange(word_, {}));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  bool in_word_ = false;
  std::string word_;
  std::vector<std::string> words_;
};

}  // namespace

std::vector<std::string> shell_words(std::string_view text) { return Splitter(text).split(); }

}  // namespace mfsdp::traces
