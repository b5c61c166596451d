// The graph of ranks that wait for each other. Private to the rules of records.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "verify/findings/finding.hpp"

namespace mfsdp::traces {

class WaitingRanks {
 public:
  void add(std::int64_t rank, std::int64_t waits_for, const std::string& group) {
    waits_[rank].try_emplace(waits_for, group);
  }
  /// MF819: ranks that wait for each other in a cycle; starts at the lowest of them.
  [[nodiscard]] std::optional<Finding> cycle() const;

 private:
  std::map<std::int64_t, std::map<std::int64_t, std::string>> waits_;  ///< value: group
};

}  // namespace mfsdp::traces
