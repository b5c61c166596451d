// Findings as they are made, with a limit for each rule.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "verify/findings/finding.hpp"

namespace mfsdp {

class FindingList {
 public:
  explicit FindingList(std::size_t most) : most_(most) {}

  /// Findings of one rule that are kept.
  [[nodiscard]] std::size_t most() const { return most_; }

  /// Whether another finding of that rule would be kept. Ask before composing its message.
  [[nodiscard]] bool wants(std::string_view rule) const {
    const auto found = counts_.find(rule);
    return found == counts_.end() || found->second < most_;
  }
  void add(Finding finding) {
    if (!wants(finding.rule) || is_there(finding)) return;
    ++counts_[finding.rule];
    has_errors_ = has_errors_ || is_error(finding.rule);
    list_.push_back(std::move(finding));
  }
  [[nodiscard]] bool has_errors() const { return has_errors_; }
  [[nodiscard]] const std::vector<Finding>& list() const { return list_; }
  [[nodiscard]] std::vector<Finding> take() { return std::move(list_); }

 private:
  /// Two checks may come upon the same two ops.
  [[nodiscard]] bool is_there(const Finding& finding) const {
    return !finding.places.empty() && std::ranges::any_of(list_, [&](const Finding& other) {
      return other.rule == finding.rule && other.places == finding.places &&
             other.buffer == finding.buffer;
    });
  }

  std::size_t most_;
  std::vector<Finding> list_;
  std::map<std::string, std::size_t, std::less<>> counts_;
  bool has_errors_ = false;
};

}  // namespace mfsdp
