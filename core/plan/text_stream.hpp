// Text in pieces of some ten kilobytes, so that a plan's JSON is hashed without storing all of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstring>
#include <functional>
#include <string_view>

namespace mfsdp {

class TextStream {
 public:
  /// `take` receives the text piece by piece.
  explicit TextStream(std::function<void(std::string_view)> take) : take_(std::move(take)) {}
  TextStream(const TextStream&) = delete;
  TextStream& operator=(const TextStream&) = delete;
  ~TextStream() = default;

  /// A place for up to `bytes` characters, at most kLargest. `advance` sets the end of those
  /// written.
  [[nodiscard]] char* room(std::size_t bytes) {
    if (text_.size() - size_ < bytes) flush();
    return text_.data() + size_;
  }
  void advance(const char* end) { size_ = static_cast<std::size_t>(end - text_.data()); }

  void put(char c) {
    char* at = room(1);
    *at = c;
    advance(at + 1);
  }
  void put(std::string_view text) {
    if (text.size() > kLargest) {
      flush();
      take_(text);
      return;
    }
    char* at = room(text.size());
    std::memcpy(at, text.data(), text.size());
    advance(at + text.size());
  }

  /// Passes on the remaining text. Call once, last.
  void flush() {
    take_({text_.data(), size_});
    size_ = 0;
  }

  static constexpr std::size_t kLargest = 4096;

 private:
  std::function<void(std::string_view)> take_;
  std::size_t size_ = 0;
  std::array<char, std::size_t{32} * 1024> text_{};
};

}  // namespace mfsdp
