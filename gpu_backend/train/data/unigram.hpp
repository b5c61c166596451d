// Frequencies of single tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace mfsdp {

/// How many tokens the entropy of a data set is taken of, at most.
inline constexpr std::int64_t kMostCountedTokens = std::int64_t{1} << 24;

/// Counts tokens of [0, vocab), up to kMostCountedTokens of them.
class UnigramCounter {
 public:
  explicit UnigramCounter(std::int64_t vocab) : counts_(static_cast<std::size_t>(vocab)) {}

  /// Negative ones (kIgnoreIndex) are passed over.
  void add(std::span<const std::int32_t> tokens);
  [[nodiscard]] bool is_full() const { return total_ >= kMostCountedTokens; }
  /// - sum p ln p, in nats; 0 if nothing was counted.
  [[nodiscard]] double entropy() const;

 private:
  std::vector<std::int64_t> counts_;
  std::int64_t total_ = 0;
};

}  // namespace mfsdp
