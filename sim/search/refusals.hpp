// Combinations that are refused, counted by reason.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/base/error.hpp"

namespace mfsdp {

/// A rule of a flag, and how many combinations break it first.
struct Refusal {
  Error first;  ///< of one of them
  std::int64_t count = 0;
};

/// Errors that differ in numbers and names alone are one rule.
class Refusals {
 public:
  void add(const Error& error);

  [[nodiscard]] std::int64_t count() const { return count_; }
  /// The most frequent first.
  [[nodiscard]] std::vector<Refusal> by_rule() const;

 private:
  std::int64_t count_ = 0;
  std::vector<Refusal> rules_;
  std::unordered_map<std::string, std::size_t> known_;
};

}  // namespace mfsdp
