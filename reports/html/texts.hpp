// Texts that repeat, by number.
#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace mfsdp {

/// The argument of `number` must outlive this.
class Texts {
 public:
  std::int64_t number(std::string_view text) {
    const auto [found, is_new] = numbers_.emplace(text, std::ssize(list_));
    if (is_new) list_.push_back(text);
    return found->second;
  }
  [[nodiscard]] const std::vector<std::string_view>& list() const { return list_; }

 private:
  std::vector<std::string_view> list_;
  std::unordered_map<std::string_view, std::int64_t> numbers_;
};

}  // namespace mfsdp
